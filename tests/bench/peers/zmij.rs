//! The crate zmij, called from C.

/// Straight to where the text should be: its buffer is nothing but bytes.
#[no_mangle]
pub unsafe extern "C" fn zmij_print(values: *const f32, count: usize, out: *mut u8) -> usize {
    let mut at = out;
    for i in 0..count {
        let buffer = &mut *(at as *mut zmij::Buffer);
        at = at.add(buffer.format_finite(*values.add(i)).len());
        *at = b',';
        at = at.add(1);
    }
    at.offset_from(out) as usize
}
