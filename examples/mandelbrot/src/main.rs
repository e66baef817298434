//! Draws the Mandelbrot set to a PNG: a device function that the host calls, too, and gets the same
//! bits from.
//!
//! ```console
//! $ cargo run -p mandelbrot -- mandelbrot.png
//! $ cargo test -p mandelbrot
//! ```

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cuda_std::launch::LaunchConfig;
use cust::prelude::*;
use mandelbrot_kernels::{Rgb, mandelbrot};

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("where to? For example: mandelbrot.png")?;
    let (width, height) = (600, 400);
    let image = draw(width, height)?;
    write_png(BufWriter::new(File::create(path)?), width, height, &image)
}

fn draw(width: u32, height: u32) -> Result<Vec<Rgb>, Box<dyn Error>> {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { mandelbrot::load(&module) }?;

    let mut image = DeviceBuffer::<Rgb>::zeroed((width * height) as usize)?;
    let config = LaunchConfig::for_num_elems(width * height, 128);
    kernel.run(&stream, config, width, height, &mut image)?;
    Ok(image.as_host_vec()?)
}

fn write_png(to: impl Write, width: u32, height: u32, image: &[Rgb]) -> Result<(), Box<dyn Error>> {
    let mut encoder = png::Encoder::new(to, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(image.as_flattened())?;
    Ok(writer.finish()?)
}

#[test]
fn the_image_is_that_of_the_cpu() {
    use mandelbrot_kernels::colour;
    let (width, height) = (90, 61);
    let image = draw(width, height).unwrap();
    let expected: Vec<Rgb> =
        (0..width * height).map(|i| colour(i % width, i / width, width, height)).collect();
    assert!(expected.contains(&[0, 0, 0]) && image == expected);

    let mut file = Vec::new();
    write_png(&mut file, width, height, &image).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut read = vec![0; 3 * image.len()];
    let info = reader.next_frame(&mut read).unwrap();
    assert!((info.width, info.height) == (width, height) && read == image.as_flattened());
}
