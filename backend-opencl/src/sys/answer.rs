//! The runtime's answers to questions about its objects.

use bytemuck::AnyBitPattern;
use cl3::error_codes::CL_INVALID_VALUE;

use super::{ClError, ClResult};

/// The bytes that a call has answered with.
pub(crate) struct Answer {
    call: &'static str,
    bytes: Vec<u8>,
}

impl Answer {
    pub(super) fn new(answered: Result<Vec<u8>, i32>, call: &'static str) -> ClResult<Self> {
        match answered {
            Ok(bytes) => Ok(Self { call, bytes }),
            Err(code) => Err(ClError::new(call, code)),
        }
    }

    /// Returns the one value that the answer is. Handles are addresses.
    pub(crate) fn value<T: AnyBitPattern>(&self) -> ClResult<T> {
        bytemuck::try_pod_read_unaligned(&self.bytes)
            .map_err(|_| ClError::new(self.call, CL_INVALID_VALUE))
    }

    /// Returns the number in an answer of 4 bytes or 8.
    pub(crate) fn number(&self) -> ClResult<u64> {
        self.value::<u32>()
            .map_or_else(|_| self.value(), |number| Ok(number.into()))
    }

    /// Returns the number in an answer of 4 bytes or 8, or the largest `usize`.
    pub(crate) fn size(&self) -> ClResult<usize> {
        Ok(usize::try_from(self.number()?).unwrap_or(usize::MAX))
    }

    /// Returns the values of a list.
    pub(crate) fn list<T: AnyBitPattern>(&self) -> Vec<T> {
        let values = self.bytes.chunks_exact(size_of::<T>().max(1));
        values.map(bytemuck::pod_read_unaligned).collect()
    }

    /// Returns the text, up to the null byte that ends it.
    pub(crate) fn text(&self) -> String {
        let end = self.bytes.iter().position(|&byte| byte == 0);
        let text = &self.bytes[..end.unwrap_or(self.bytes.len())];
        String::from_utf8_lossy(text).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_at_its_null_byte_and_has_no_blanks_around() {
        let text = |bytes: &[u8]| {
            Answer::new(Ok(bytes.into()), "clGetDeviceInfo")
                .unwrap()
                .text()
        };
        assert_eq!(text(b" NVIDIA H200 \0junk"), "NVIDIA H200");
        assert_eq!(text(b"plain"), "plain");
        assert_eq!(text(b""), "");
    }

    #[test]
    fn a_number_has_four_bytes_or_eight() {
        let answer = |bytes: &[u8]| Answer::new(Ok(bytes.into()), "clGetDeviceInfo").unwrap();
        assert_eq!(answer(&7_u32.to_ne_bytes()).number(), Ok(7));
        assert_eq!(answer(&u64::MAX.to_ne_bytes()).number(), Ok(u64::MAX));
        let refused = ClError::new("clGetDeviceInfo", CL_INVALID_VALUE);
        assert_eq!(answer(&[1, 2, 3]).number(), Err(refused));
    }
}
