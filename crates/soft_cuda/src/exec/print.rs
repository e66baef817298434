//! `vprintf` and `__assertfail`, which the driver of a GPU defines.

use super::address::resolve;
use super::element::Transfer;
use super::format::{Argument, Part, Size, parts};
use super::op::{Cx, Handler, Op};
use crate::fault::{Access, AddressSpace, FaultKind};

/// The most bytes of a string.
const MAX_STRING: u64 = 1 << 20;
/// The most characters of a text in a message.
const MAX_TEXT: u64 = 1 << 10;

/// `vprintf`: `d` receives the number of arguments printed; `a` address of the format, `b` of
/// the arguments, each aligned to its size.
pub(crate) struct Print;

// SAFETY: touches only the slots `d`, `a` and `b`.
unsafe impl Handler for Print {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        for lane in cx.active() {
            // SAFETY: both slots have 64-bit lanes.
            let [format, arguments] =
                [op.a, op.b].map(|slot| unsafe { *cx.slot::<u64>(slot).add(lane) });
            match print(cx, lane as u32, format, arguments) {
                Ok((text, count)) => {
                    // SAFETY: `d` has 32-bit lanes.
                    unsafe { *cx.slot::<u32>(op.d).add(lane) = count };
                    cx.printed.add(cx.warp, lane as u32, text);
                }
                Err(kind) => return cx.fail(lane as u32, kind),
            }
        }
        false
    }
}

/// `__assertfail`: `a` address of the message, `b` of the file's name, `c` line; [`Cx::extra`] from
/// `x`: slots of the address of the function's name, and of the bytes of a character.
pub(crate) struct AssertFail;

// SAFETY: touches only the slots named.
unsafe impl Handler for AssertFail {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let lane = cx.mask.trailing_zeros();
        let [function, char_size] = [0, 1].map(|i| cx.extra[op.x as usize + i]);
        // SAFETY: `c` has 32-bit lanes, the other slots have 64-bit lanes.
        let (line, [message, file, function, char_size]) = unsafe {
            let wide = |slot| *cx.slot::<u64>(slot).add(lane as usize);
            let line = *cx.slot::<u32>(op.c).add(lane as usize);
            (line, [op.a, op.b, function, char_size].map(wide))
        };
        let text = |address| text(cx, lane, address, char_size);
        let (message, file, function) = (text(message), text(file), text(function));
        cx.fail(lane, FaultKind::Assert { message, file, line, function })
    }
}

/// A text for a message, with `char_size` bytes a character: as much as can be read.
fn text(cx: &Cx<'_>, lane: u32, address: u64, char_size: u64) -> String {
    let bytes = if matches!(char_size, 2 | 4) { char_size as u32 } else { 1 };
    let mut all = Vec::new();
    for at in (0..MAX_TEXT).map(|i| address.wrapping_add(i * u64::from(bytes))) {
        match load(cx, lane, at, bytes) {
            Ok(0) => break,
            Ok(character) => all.push(character),
            Err(_) if all.is_empty() => return format!("(no text at {address:#x})"),
            Err(_) => break,
        }
    }
    match bytes {
        1 => String::from_utf8_lossy(&all.iter().map(|&c| c as u8).collect::<Vec<_>>()).into(),
        2 => String::from_utf16_lossy(&all.iter().map(|&c| c as u16).collect::<Vec<_>>()),
        _ => {
            let character = |&c: &u64| char::from_u32(c as u32);
            all.iter().map(|c| character(c).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
    }
}

/// What a lane prints, and how many arguments that takes.
fn print(
    cx: &Cx<'_>,
    lane: u32,
    format: u64,
    mut arguments: u64,
) -> Result<(Vec<u8>, u32), FaultKind> {
    let format = string(cx, lane, format, MAX_STRING)?;
    let (mut out, mut count) = (Vec::new(), 0);
    let mut next = |bytes: u32| {
        count += 1;
        // What does not fit in the address space is nowhere.
        let address = arguments.checked_next_multiple_of(bytes.into()).unwrap_or(0);
        arguments = address.wrapping_add(bytes.into());
        load(cx, lane, address, bytes)
    };
    for part in parts(&format) {
        match part {
            Part::Text(text) => out.extend_from_slice(text),
            Part::Conversion(conversion) => {
                let mut star = |size| match size {
                    Size::Argument => next(4).map(|bits| Some(bits as u32 as i32)),
                    _ => Ok(None),
                };
                let (width, precision) = (star(conversion.width)?, star(conversion.precision)?);
                let conversion = conversion.with(width, precision);
                let bits = next(conversion.bytes())?;
                let argument = match conversion.is_string() {
                    true => Argument::Text(string(cx, lane, bits, conversion.most())?),
                    false => Argument::Bits(bits),
                };
                conversion.write(&argument, &mut out);
            }
        }
    }
    Ok((out, count))
}

/// An element of memory, by its generic address.
fn load(cx: &Cx<'_>, lane: u32, address: u64, bytes: u32) -> Result<u64, FaultKind> {
    let host = resolve(cx, lane, address, bytes, AddressSpace::Generic, Access::Load)?;
    // SAFETY: `resolve` checked the bounds and the alignment.
    Ok(unsafe { Transfer { bytes, signed: false, wide: true }.load(host) })
}

/// The bytes up to a zero, but at most `most`.
fn string(cx: &Cx<'_>, lane: u32, address: u64, most: u64) -> Result<Vec<u8>, FaultKind> {
    let mut bytes = Vec::new();
    for at in 0..most.min(MAX_STRING) {
        match load(cx, lane, address.wrapping_add(at), 1)? as u8 {
            0 => break,
            byte => bytes.push(byte),
        }
    }
    Ok(bytes)
}
