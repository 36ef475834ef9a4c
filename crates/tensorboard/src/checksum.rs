//! The checksum of records: CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.

/// For each byte, the remainder of its division by the polynomial 0x1EDC6F41. CRC-32C takes all
/// bits in reverse order, so the computation uses this polynomial with reversed bits, 0x82F63B78.
const REMAINDERS: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let reduced = if remainder & 1 == 1 { 0x82F6_3B78 } else { 0 };
            remainder = (remainder >> 1) ^ reduced;
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
};

/// CRC-32C of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, &byte| REMAINDERS[usize::from(sum as u8 ^ byte)] ^ (sum >> 8))
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn checksums_are_those_of_the_standard() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        for (bytes, sum) in [
            (&[0; 32][..], 0x8A91_36AA),
            (&[0xFF; 32], 0x62A8_AB43),
            (&rising, 0x46DD_794E),
            (&falling, 0x113F_DB5C),
            (b"123456789", 0xE306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(bytes), sum, "{bytes:?}");
        }
    }
}
