//! Reads the bits of entropy-coded data, and decodes Huffman codes.

/// Number of bits that are looked up at once in [`HuffmanTable::quick`].
const QUICK: u32 = 9;

/// Huffman table: the symbol of each code.
#[derive(Clone)]
pub(super) struct HuffmanTable {
    /// The entry at index i belongs to data whose next [`QUICK`] bits are the number i. It has the
    /// length and the symbol of the code with which these bits begin. The length is 0 if the code
    /// is longer than [`QUICK`] bits.
    quick: Vec<(u8, u8)>,
    /// For each code length, the largest code of this length plus 1. It is shifted left to 16 bits,
    /// so that it can be compared with the next 16 bits of the data.
    ends: [u32; 17],
    /// For each code length, the number that is added to a code to get the index of its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
}

impl HuffmanTable {
    /// Makes a table. `counts` has the number of codes of each length from 1 to 16, and `symbols`
    /// the symbols in the order of their codes. `None` if there are too many codes, or if `is_dc`
    /// is true and a symbol is not valid for a DC coefficient.
    pub(super) fn from_counts(counts: &[u8; 16], symbols: &[u8], is_dc: bool) -> Option<Self> {
        if symbols.len() > 256 || is_dc && symbols.iter().any(|&symbol| symbol > 15) {
            return None;
        }
        let mut table = Self {
            quick: vec![(0, 0); 1 << QUICK],
            ends: [0; 17],
            offsets: [0; 17],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut place) = (0_u32, 0_usize);
        for length in 1..=16_u32 {
            table.offsets[length as usize] = place as i32 - code as i32;
            for _ in 0..counts[length as usize - 1] {
                if code >= 1 << length {
                    return None;
                }
                if length <= QUICK {
                    let first = (code << (QUICK - length)) as usize;
                    let entry = (length as u8, symbols[place]);
                    table.quick[first..first + (1 << (QUICK - length))].fill(entry);
                }
                code += 1;
                place += 1;
            }
            table.ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Some(table)
    }
}

/// Reader of bits up to the next marker. After the last bit, it reads zeros.
pub(super) struct Bits<'a> {
    data: &'a [u8],
    /// Number of bytes that were read from `data`.
    at: usize,
    held: u64,
    count: u32,
    /// True if more bits were requested than exist.
    pub(super) is_exhausted: bool,
}

impl<'a> Bits<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, held: 0, count: 0, is_exhausted: false }
    }

    /// Number of bytes that were read, at most up to the next marker.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Next byte of the data; `None` before a marker and at the end.
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.data.get(self.at)?;
        if byte != 0xFF {
            self.at += 1;
            return Some(byte);
        }
        let filled = self.data[self.at..].iter().take_while(|&&byte| byte == 0xFF).count();
        match self.data.get(self.at + filled) {
            Some(0) => {
                self.at += filled + 1;
                Some(0xFF)
            }
            _ => None,
        }
    }

    /// Buffers at least 16 bits, unless the data end.
    fn fill(&mut self) {
        while self.count <= 48 {
            match self.byte() {
                Some(byte) => {
                    self.held = self.held << 8 | u64::from(byte);
                    self.count += 8;
                }
                None => return,
            }
        }
    }

    /// Next `count` bits, at most 16, without removing them.
    fn peek(&mut self, count: u32) -> u32 {
        if self.count < count {
            self.fill();
        }
        let bits = match self.count.checked_sub(count) {
            Some(more) => self.held >> more,
            None => self.held << (count - self.count),
        };
        (bits & ((1 << count) - 1)) as u32
    }

    fn drop(&mut self, count: u32) {
        match self.count.checked_sub(count) {
            Some(left) => {
                self.count = left;
                self.held &= (1 << left) - 1;
            }
            None => {
                (self.count, self.held) = (0, 0);
                self.is_exhausted = true;
            }
        }
    }

    /// Takes the next `count` bits, at most 16, as a number.
    pub(super) fn take(&mut self, count: u32) -> i32 {
        if count == 0 {
            return 0;
        }
        let bits = self.peek(count);
        self.drop(count);
        bits as i32
    }

    /// Takes `count` bits as a signed number; a first bit of 0 means a negative number.
    pub(super) fn take_signed(&mut self, count: u32) -> i32 {
        let bits = self.take(count);
        if count > 0 && bits < 1 << (count - 1) { bits - (1 << count) + 1 } else { bits }
    }

    /// Takes the next symbol; 0 if the bits are not a code.
    pub(super) fn symbol(&mut self, table: &HuffmanTable) -> u8 {
        let next = self.peek(16);
        let (length, symbol) = table.quick[(next >> (16 - QUICK)) as usize];
        if length > 0 {
            self.drop(u32::from(length));
            return symbol;
        }
        let Some(length) = (QUICK as usize + 1..=16).find(|&length| next < table.ends[length])
        else {
            self.drop(16);
            return 0;
        };
        self.drop(length as u32);
        let place = (next >> (16 - length)) as i32 + table.offsets[length];
        usize::try_from(place).ok().and_then(|place| table.symbols.get(place)).copied().unwrap_or(0)
    }

    /// Continues after the next marker if it is a restart marker. Otherwise returns false, and the
    /// scan has ended.
    pub(super) fn restart(&mut self) -> bool {
        (self.held, self.count) = (0, 0);
        let Some((0xD0..=0xD7, behind)) = super::next_marker(self.data, self.at) else {
            return false;
        };
        (self.at, self.is_exhausted) = (behind, false);
        true
    }
}
