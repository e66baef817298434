use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let sums = {{crate_name}}::add(&numbers, &numbers)?;
    println!("{} + {} = {}", numbers[999], numbers[999], sums[999]);
    Ok(())
}
