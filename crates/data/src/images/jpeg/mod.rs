//! Decodes JPEG files to the same pixels as libjpeg, byte for byte. Image models are trained on
//! libjpeg's output, and other rounding of pixels would change their predictions.
//!
//! Baseline, extended and progressive files with Huffman codes and 8 bits are read, with 1, 3 or 4
//! components. Other files are refused, and the error names their kind. Damaged entropy-coded data
//! give zeros up to the next restart marker, as in libjpeg. If a progressive file lacks scans,
//! libjpeg smooths the blocks; this decoder does not. (ITU-T T.81; libjpeg-turbo, `jdhuff.c`,
//! `jdphuff.c`, `jdmarker.c`.)

mod bits;
mod output;
mod scan;
mod transform;

use self::bits::HuffmanTable;
use self::scan::Scan;
use super::raster::Raster;

/// Converts an index in zigzag order, the order in the file, to an index in the block, which is
/// stored row by row. The entries after the 64th are 63, so that damaged data cannot index beyond
/// the block.
const ZIGZAG: [u8; 80] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63,
];

/// Largest number of scans. It is limited because even a small file may have many scans, and
/// decoding each scan passes over the whole picture.
const MOST_SCANS: usize = 500;

/// Coefficients of a block, as rows of eight.
type Block = [i16; 64];

/// One component of the picture: grey values, or the values of one colour.
struct Component {
    id: u8,
    /// Horizontal sampling factor, relative to the other components.
    across: usize,
    /// Vertical sampling factor, relative to the other components.
    down: usize,
    quantization: usize,
    /// Width of the component in samples, without the padding of the last blocks.
    width: usize,
    height: usize,
    /// Number of blocks from left to right. It includes the blocks that fill up the last minimum
    /// coded unit (MCU).
    blocks_across: usize,
    /// Number of blocks from top to bottom. It includes the blocks that fill up the last MCU.
    blocks_down: usize,
    /// Quantization table that is in force at the component's first scan; the file may redefine it
    /// later.
    table: Option<[u16; 64]>,
    /// Coefficients of the component in a progressive file. Each scan adds to them.
    coefficients: Vec<Block>,
    /// Samples, row by row; each row has eight times `blocks_across` samples.
    samples: Vec<u8>,
}

/// Colour space of the components.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Colours {
    Grey,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
}

/// State of the decoder: everything that the file has defined so far.
#[derive(Default)]
struct Decoder {
    components: Vec<Component>,
    height: usize,
    width: usize,
    most_across: usize,
    most_down: usize,
    is_progressive: bool,
    quantization: [Option<[u16; 64]>; 4],
    /// Huffman tables of DC coefficients, and Huffman tables of AC coefficients.
    huffman: [[Option<HuffmanTable>; 4]; 2],
    restart_interval: usize,
    is_jfif: bool,
    adobe_transform: Option<u8>,
}

/// The number in the two bytes from `at` on, the high byte first; `None` if there are fewer bytes.
fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])))
}

/// Decodes a complete JPEG with at most `most_side` samples on a side and at most `most_bytes` in
/// total.
///
/// # Errors
///
/// A description of the fault, if the file is damaged or of an unsupported kind.
pub(super) fn decoded(bytes: &[u8], most_side: usize, most_bytes: usize) -> Result<Raster, String> {
    let mut decoder = Decoder::default();
    let mut at = 0;
    let mut scans = 0;
    loop {
        let (marker, behind) = next_marker(bytes, at).ok_or("its end is missing")?;
        at = behind;
        if matches!(marker, 0x01 | 0xD0..=0xD8) {
            continue;
        }
        if marker == 0xD9 {
            break;
        }
        let length = word(bytes, at).ok_or("a segment is cut off")?;
        let segment = bytes.get(at + 2..at + length).ok_or("a segment is cut off")?;
        at += length;
        match marker {
            0xC0..=0xC2 => {
                decoder.is_progressive = marker == 0xC2;
                decoder.frame(segment, most_side, most_bytes)?;
            }
            0xC4 => decoder.huffman_tables(segment).ok_or("a Huffman table is damaged")?,
            0xC3 | 0xC5..=0xCF => {
                return Err(format!(
                    "its coding (SOF{}) is not read: save it as baseline or progressive",
                    marker - 0xC0
                ));
            }
            0xDB => decoder.quantization(segment).ok_or("a quantization table is damaged")?,
            0xDD => decoder.restart_interval = word(segment, 0).ok_or("a segment is cut off")?,
            0xE0 if segment.starts_with(b"JFIF\0") => decoder.is_jfif = true,
            0xEE if segment.starts_with(b"Adobe") => {
                decoder.adobe_transform = segment.get(11).copied();
            }
            0xDA => {
                let mut scan = Scan::read(&mut decoder, segment)?;
                at += scan.decode(&bytes[at..]);
                scans += 1;
                if scans > MOST_SCANS {
                    return Err(format!("it has more than {MOST_SCANS} scans"));
                }
            }
            _ => {}
        }
    }
    if scans == 0 {
        return Err("it has no picture".to_owned());
    }
    decoder.picture()
}

/// The next marker at or after the index `at`, and the index of the byte after it; `None` if there
/// is no marker.
fn next_marker(bytes: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += bytes.get(at..)?.iter().position(|&byte| byte == 0xFF)?;
        match *bytes.get(at + 1)? {
            0 => at += 2,
            0xFF => at += 1,
            marker => return Some((marker, at + 2)),
        }
    }
}

impl Decoder {
    fn quantization(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((&head, rest)) = segment.split_first() {
            let table = self.quantization.get_mut(usize::from(head & 15))?;
            let bytes = if head >> 4 == 0 { 1 } else { 2 };
            let (values, rest) = rest.split_at_checked(64 * bytes)?;
            let mut found = [0; 64];
            for (value, place) in values.chunks_exact(bytes).zip(ZIGZAG) {
                found[usize::from(place)] =
                    value.iter().fold(0, |sum, &byte| sum << 8 | u16::from(byte));
            }
            *table = Some(found);
            segment = rest;
        }
        Some(())
    }

    fn huffman_tables(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((&head, rest)) = segment.split_first() {
            let (class, number) = (usize::from(head >> 4), usize::from(head & 15));
            let (counts, rest) = rest.split_first_chunk::<16>()?;
            let count = counts.iter().map(|&count| usize::from(count)).sum();
            let (symbols, rest) = rest.split_at_checked(count)?;
            let table = HuffmanTable::from_counts(counts, symbols, class == 0)?;
            *self.huffman.get_mut(class)?.get_mut(number)? = Some(table);
            segment = rest;
        }
        Some(())
    }

    fn frame(&mut self, segment: &[u8], most_side: usize, most_bytes: usize) -> Result<(), String> {
        const DAMAGED: &str = "its frame header is damaged";
        if !self.components.is_empty() {
            return Err("it has two frames".to_owned());
        }
        let [precision, .., count] = *segment.first_chunk::<6>().ok_or(DAMAGED)?;
        if precision != 8 {
            return Err(format!("it has {precision} bits per sample: only 8 can be read"));
        }
        self.height = word(segment, 1).ok_or(DAMAGED)?;
        self.width = word(segment, 3).ok_or(DAMAGED)?;
        let (height, width, count) = (self.height, self.width, usize::from(count));
        if height == 0 || width == 0 || height > most_side || width > most_side {
            return Err(format!(
                "it has {height} x {width} pixels; from 1 to {most_side} are read"
            ));
        }
        if !matches!(count, 1 | 3 | 4) {
            return Err(format!("it has {count} components; 1, 3 or 4 are read"));
        }
        if height * width * count.max(3) > most_bytes {
            return Err(format!("its {height} x {width} pixels take more than {most_bytes} bytes"));
        }
        self.read_components(segment, count).ok_or(DAMAGED)?;
        self.lay_out()
    }

    /// Adds the components that the header of a frame describes; `None` if the header is damaged.
    fn read_components(&mut self, segment: &[u8], count: usize) -> Option<()> {
        for number in 0..count {
            let at = 6 + 3 * number;
            let [id, sampling, quantization] = *segment.get(at..)?.first_chunk()?;
            let (across, down) = (usize::from(sampling >> 4), usize::from(sampling & 15));
            if !(1..=4).contains(&across) || !(1..=4).contains(&down) || quantization > 3 {
                return None;
            }
            self.components.push(Component {
                id,
                across,
                down,
                quantization: usize::from(quantization),
                width: 0,
                height: 0,
                blocks_across: 0,
                blocks_down: 0,
                table: None,
                coefficients: Vec::new(),
                samples: Vec::new(),
            });
        }
        Some(())
    }

    /// Computes the sizes of the components, and allocates their blocks.
    fn lay_out(&mut self) -> Result<(), String> {
        let (height, width) = (self.height, self.width);
        let most = |sampling: fn(&Component) -> usize| {
            self.components.iter().map(sampling).max().unwrap_or(1)
        };
        let (most_across, most_down) = (most(|one| one.across), most(|one| one.down));
        let divides = |one: &Component| most_across % one.across == 0 && most_down % one.down == 0;
        if !self.components.iter().all(divides) {
            return Err("its components are sampled at fractions of each other".to_owned());
        }
        let (units_across, units_down) =
            (width.div_ceil(8 * most_across), height.div_ceil(8 * most_down));
        for one in &mut self.components {
            one.width = (width * one.across).div_ceil(most_across);
            one.height = (height * one.down).div_ceil(most_down);
            one.blocks_across = units_across * one.across;
            one.blocks_down = units_down * one.down;
            let blocks = one.blocks_across * one.blocks_down;
            if self.is_progressive {
                one.coefficients = vec![[0; 64]; blocks];
            }
            // Samples that no scan contains stay grey.
            one.samples = vec![128; 64 * blocks];
        }
        (self.most_across, self.most_down) = (most_across, most_down);
        Ok(())
    }

    /// Colour space of the components, guessed as in libjpeg.
    fn colours(&self) -> Colours {
        let ids: Vec<u8> = self.components.iter().map(|one| one.id).collect();
        match (ids.len(), self.adobe_transform) {
            (1, _) => Colours::Grey,
            (4, None | Some(0)) => Colours::Cmyk,
            (4, _) => Colours::Ycck,
            _ if self.is_jfif => Colours::YCbCr,
            (_, Some(0)) => Colours::Rgb,
            (_, None) if ids == *b"RGB" => Colours::Rgb,
            _ => Colours::YCbCr,
        }
    }

    fn picture(mut self) -> Result<Raster, String> {
        for one in &mut self.components {
            one.transform_all();
        }
        let (height, width) = (self.height, self.width);
        let values = output::pixels(&self, self.colours());
        let channels = if self.components.len() == 1 { 1 } else { 3 };
        match values.len() == height * width * channels {
            true => Ok(Raster { height, width, channels, values }),
            false => Err("its picture is not whole".to_owned()),
        }
    }
}

impl Component {
    /// Stores the quantization table that is in force at the component's first scan.
    fn keep_table(&mut self, tables: &[Option<[u16; 64]>; 4]) -> Result<(), String> {
        if self.table.is_none() {
            let table = tables[self.quantization].ok_or("a quantization table is missing")?;
            self.table = Some(table);
        }
        Ok(())
    }

    /// Converts a block of coefficients to samples. `number` is the index of the block.
    fn transform(&mut self, number: usize, block: &Block) {
        let Some(table) = &self.table else { return };
        let samples = transform::samples(block, table);
        let stride = 8 * self.blocks_across;
        let (row, column) = (number / self.blocks_across, number % self.blocks_across);
        for (line, values) in samples.chunks_exact(8).enumerate() {
            let at = (8 * row + line) * stride + 8 * column;
            self.samples[at..at + 8].copy_from_slice(values);
        }
    }

    /// Converts all coefficients of a progressive file to samples.
    fn transform_all(&mut self) {
        for (number, block) in std::mem::take(&mut self.coefficients).iter().enumerate() {
            self.transform(number, block);
        }
    }
}
