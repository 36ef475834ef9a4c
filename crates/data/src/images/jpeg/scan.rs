//! Decodes scans. A scan contains the blocks of one component or the interleaved blocks of several
//! components, with all or some of their coefficients.

use super::bits::{Bits, HuffmanTable};
use super::{Block, Decoder, ZIGZAG};

/// Component in a scan, with its Huffman tables.
struct Part {
    component: usize,
    dc: Option<HuffmanTable>,
    ac: Option<HuffmanTable>,
    /// DC coefficient of the last block.
    last_dc: i32,
}

/// Part of the coefficients that a scan contains.
#[derive(Clone, Copy)]
enum Stage {
    /// All coefficients, in a file that is not progressive.
    Whole,
    /// Upper bits of the DC coefficient or, if `is_first` is false, one more bit of it.
    Dc { is_first: bool },
    /// Upper bits of AC coefficients or, if `is_first` is false, one more bit of each.
    Ac { is_first: bool },
}

/// Scan to decode.
pub(super) struct Scan<'a> {
    decoder: &'a mut Decoder,
    parts: Vec<Part>,
    stage: Stage,
    /// Index in zigzag order of the first coefficient that the scan contains.
    first: usize,
    last: usize,
    /// Number of low bits of each coefficient that are still missing after this scan.
    low: u32,
    /// Number of following blocks in which no more coefficients of this scan become nonzero (the
    /// end-of-band run).
    ended: i32,
}

impl<'a> Scan<'a> {
    /// Reads the header of a scan.
    pub(super) fn read(decoder: &'a mut Decoder, header: &[u8]) -> Result<Self, String> {
        const DAMAGED: &str = "the header of a scan is damaged";
        let (&count, rest) = header.split_first().ok_or(DAMAGED)?;
        let (chosen, rest) = rest.split_at_checked(2 * usize::from(count)).ok_or(DAMAGED)?;
        let &[first, last, bits] = rest.first_chunk().ok_or(DAMAGED)?;
        let (high, low) = (u32::from(bits >> 4), u32::from(bits & 15));
        let (first, last) = (usize::from(first), usize::from(last));
        let stage = match (decoder.is_progressive, first) {
            (false, _) => Stage::Whole,
            (true, 0) if last == 0 => Stage::Dc { is_first: high == 0 },
            (true, 1..) if first <= last && count == 1 => Stage::Ac { is_first: high == 0 },
            _ => return Err(DAMAGED.to_owned()),
        };
        if !(1..=4).contains(&count) || last > 63 || low > 13 {
            return Err(DAMAGED.to_owned());
        }
        let mut parts: Vec<Part> = Vec::new();
        for pair in chosen.chunks_exact(2) {
            let component = decoder.components.iter().position(|one| one.id == pair[0]);
            let component = component.ok_or(DAMAGED)?;
            if parts.iter().any(|part| part.component == component) {
                return Err(DAMAGED.to_owned());
            }
            let table = |class: usize, number: u8| {
                decoder.huffman[class].get(usize::from(number)).cloned().flatten()
            };
            let (dc, ac) = (table(0, pair[1] >> 4), table(1, pair[1] & 15));
            let is_missing = match stage {
                Stage::Whole => dc.is_none() || ac.is_none(),
                Stage::Dc { is_first } => is_first && dc.is_none(),
                Stage::Ac { .. } => ac.is_none(),
            };
            if is_missing {
                return Err("a Huffman table is missing".to_owned());
            }
            decoder.components[component].keep_table(&decoder.quantization)?;
            parts.push(Part { component, dc, ac, last_dc: 0 });
        }
        Ok(Self { decoder, parts, stage, first, last, low, ended: 0 })
    }

    /// Decodes the data of the scan. Returns the number of bytes that were read.
    pub(super) fn decode(&mut self, data: &[u8]) -> usize {
        let mut bits = Bits::new(data);
        let interval = self.decoder.restart_interval;
        // A scan of a single component has no blocks that are only padding.
        let (across, down) = match self.parts[..] {
            [Part { component, .. }] => {
                let one = &self.decoder.components[component];
                (one.width.div_ceil(8), one.height.div_ceil(8))
            }
            _ => {
                let one = &self.decoder.components[0];
                (one.blocks_across / one.across, one.blocks_down / one.down)
            }
        };
        for unit in 0..across * down {
            if interval > 0 && unit > 0 && unit % interval == 0 {
                if !bits.restart() {
                    break;
                }
                self.ended = 0;
                self.parts.iter_mut().for_each(|part| part.last_dc = 0);
            }
            // As in libjpeg, units that are missing in the data stay grey, and a unit that is cut
            // off continues with zeros.
            if !bits.is_exhausted {
                self.unit(&mut bits, unit / across, unit % across);
            } else if interval == 0 {
                break;
            }
        }
        bits.position()
    }

    /// Decodes one minimum coded unit (MCU), which has the blocks of all components of the scan at
    /// one place of the picture. The place is given as a row and a column of units.
    fn unit(&mut self, bits: &mut Bits<'_>, row: usize, column: usize) {
        let is_alone = self.parts.len() == 1;
        for number in 0..self.parts.len() {
            let one = &self.decoder.components[self.parts[number].component];
            let stride = one.blocks_across;
            let (across, down) = if is_alone { (1, 1) } else { (one.across, one.down) };
            for block in 0..across * down {
                let (y, x) = (row * down + block / across, column * across + block % across);
                self.block(bits, number, y * stride + x);
            }
        }
    }

    /// Decodes one block. `number` is the index of its component in the scan, and `at` is the index
    /// of the block in the component.
    fn block(&mut self, bits: &mut Bits<'_>, number: usize, at: usize) {
        let component = self.parts[number].component;
        if matches!(self.stage, Stage::Whole) {
            let mut block = [0; 64];
            self.parts[number].whole(bits, &mut block);
            self.decoder.components[component].transform(at, &block);
            return;
        }
        let block = &mut self.decoder.components[component].coefficients[at];
        let part = &mut self.parts[number];
        match self.stage {
            Stage::Dc { is_first: true } => part.dc(bits, block, self.low),
            Stage::Dc { is_first: false } => block[0] |= (bits.take(1) << self.low) as i16,
            Stage::Ac { is_first } => {
                let Some(table) = &part.ac else { return };
                let band = Band { first: self.first, last: self.last, low: self.low };
                match is_first {
                    true => band.first(bits, table, block, &mut self.ended),
                    false => band.refine(bits, table, block, &mut self.ended),
                }
            }
            Stage::Whole => {}
        }
    }
}

impl Part {
    fn dc(&mut self, bits: &mut Bits<'_>, block: &mut Block, low: u32) {
        let Some(table) = &self.dc else { return };
        let length = u32::from(bits.symbol(table));
        self.last_dc = self.last_dc.wrapping_add(bits.take_signed(length));
        block[0] = self.last_dc.wrapping_shl(low) as i16;
    }

    /// Decodes all coefficients of a block.
    fn whole(&mut self, bits: &mut Bits<'_>, block: &mut Block) {
        self.dc(bits, block, 0);
        let Some(table) = &self.ac else { return };
        let mut at = 1;
        while at < 64 {
            let symbol = bits.symbol(table);
            let (zeros, length) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            at += zeros;
            match length {
                0 if zeros < 15 => break,
                0 => {}
                _ => block[usize::from(ZIGZAG[at])] = bits.take_signed(length) as i16,
            }
            at += 1;
        }
    }
}

/// Range of coefficients, in zigzag order, that a scan contains.
struct Band {
    first: usize,
    last: usize,
    low: u32,
}

impl Band {
    /// Decodes the upper bits of the coefficients in the range.
    fn first(&self, bits: &mut Bits<'_>, table: &HuffmanTable, block: &mut Block, ended: &mut i32) {
        if *ended > 0 {
            *ended -= 1;
            return;
        }
        let mut at = self.first;
        while at <= self.last {
            let symbol = bits.symbol(table);
            let (zeros, length) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            match (length, zeros) {
                (0, 15) => at += 15,
                (0, _) => {
                    *ended = (1 << zeros) - 1 + bits.take(zeros);
                    return;
                }
                _ => {
                    at += zeros as usize;
                    let value = bits.take_signed(length).wrapping_shl(self.low);
                    block[usize::from(ZIGZAG[at])] = value as i16;
                }
            }
            at += 1;
        }
    }

    /// Decodes one more bit of the coefficients that are not 0, and the coefficients that change
    /// from 0 to 1 or -1 at this bit.
    fn refine(
        &self,
        bits: &mut Bits<'_>,
        table: &HuffmanTable,
        block: &mut Block,
        ended: &mut i32,
    ) {
        let one = 1_i16 << self.low;
        let mut at = self.first;
        if *ended == 0 {
            while at <= self.last {
                let symbol = bits.symbol(table);
                let (mut zeros, length) = (i32::from(symbol >> 4), symbol & 15);
                let mut value = 0;
                if length > 0 {
                    value = if bits.take(1) == 1 { one } else { -one };
                } else if zeros < 15 {
                    *ended = (1 << zeros) + bits.take(zeros as u32);
                    break;
                }
                while at <= self.last {
                    let coefficient = &mut block[usize::from(ZIGZAG[at])];
                    if *coefficient != 0 {
                        refined(bits, coefficient, one);
                    } else {
                        zeros -= 1;
                        if zeros < 0 {
                            break;
                        }
                    }
                    at += 1;
                }
                if value != 0 && at <= self.last {
                    block[usize::from(ZIGZAG[at])] = value;
                }
                at += 1;
            }
        }
        if *ended > 0 {
            while at <= self.last {
                let coefficient = &mut block[usize::from(ZIGZAG[at])];
                if *coefficient != 0 {
                    refined(bits, coefficient, one);
                }
                at += 1;
            }
            *ended -= 1;
        }
    }
}

/// Adds one more bit to a nonzero coefficient. In `one`, only this bit is set.
fn refined(bits: &mut Bits<'_>, coefficient: &mut i16, one: i16) {
    if bits.take(1) == 1 && *coefficient & one == 0 {
        *coefficient = coefficient.wrapping_add(if *coefficient > 0 { one } else { -one });
    }
}
