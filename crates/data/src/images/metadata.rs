//! Examines a JPEG or PNG file before it is decoded: whether a JPEG is complete, and how the
//! picture must be turned to be upright.

/// First bytes of a PNG file. The next constants are the first bytes of EXIF data and of an XMP
/// packet in a JPEG.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const EXIF: &[u8] = b"Exif\0\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";

/// Markers of a JPEG, each of which follows a byte `0xFF`: the end, a scan, and application data.
const END: u8 = 0xD9;
const SCAN: u8 = 0xDA;
const APPLICATION_1: u8 = 0xE1;

/// Number of the field in EXIF data that contains the orientation.
const ORIENTATION: u16 = 0x0112;

/// True if a file is a JPEG.
pub(super) fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xFF, 0xD8, 0xFF])
}

/// True if a JPEG contains the marker of its end.
///
/// libjpeg, and so Pillow, requires this marker. Bytes after the marker are ignored.
pub(super) fn is_whole(jpeg: &[u8]) -> bool {
    segments(jpeg).any(|(marker, _)| marker == END)
}

/// Orientation of a picture as the number that EXIF uses, from 1 to 8; 1 is upright. It is read
/// from the EXIF data. If the EXIF data state no orientation, it is read from the XMP packet, as in
/// Pillow's `exif_transpose`.
pub(super) fn orientation(bytes: &[u8]) -> u32 {
    let mut exif = None;
    let mut xmp = None;
    if bytes.starts_with(PNG) {
        for (kind, content) in chunks(bytes) {
            match kind {
                b"eXIf" => exif = exif.or(Some(content)),
                b"iTXt" if content.starts_with(b"XML:com.adobe.xmp\0") => {
                    xmp = xmp.or(Some(content))
                }
                _ => {}
            }
        }
    } else {
        let before_pixels = segments(bytes).take_while(|(marker, _)| *marker != SCAN);
        for (_, content) in before_pixels.filter(|(marker, _)| *marker == APPLICATION_1) {
            exif = exif.or_else(|| content.strip_prefix(EXIF));
            xmp = xmp.or_else(|| content.strip_prefix(XMP));
        }
    }
    let number = exif.and_then(in_exif).or_else(|| xmp.and_then(in_xmp));
    number.filter(|number| (1..=8).contains(number)).unwrap_or(1)
}

/// Markers of a JPEG in order, each with the content of its segment. All markers up to the end of
/// the file are included, also those between parts of the entropy-coded data.
fn segments(jpeg: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = jpeg;
    std::iter::from_fn(move || {
        loop {
            let at = rest.iter().position(|&byte| byte == 0xFF)?;
            let marker = *rest.get(at + 1)?;
            match marker {
                // 0 follows a byte 0xFF of the data; another 0xFF follows a padding byte.
                0 => rest = &rest[at + 2..],
                0xFF => rest = &rest[at + 1..],
                // Restart markers, and the markers of beginning and end, have no content.
                0x01 | 0xD0..=END => {
                    rest = &rest[at + 2..];
                    return Some((marker, &[][..]));
                }
                _ => {
                    let length =
                        usize::from(u16::from_be_bytes([*rest.get(at + 2)?, *rest.get(at + 3)?]));
                    let content = rest.get(at + 4..at + 2 + length)?;
                    rest = &rest[at + 2 + length..];
                    return Some((marker, content));
                }
            }
        }
    })
}

/// Chunks of a PNG file: each chunk's type and content.
fn chunks(png: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = &png[PNG.len()..];
    std::iter::from_fn(move || {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (kind, tail) = tail.split_at_checked(4)?;
        let (content, tail) = tail.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        // A checksum follows.
        rest = tail.get(4..)?;
        Some((kind, content))
    })
}

/// Orientation number in EXIF data, which have the format of a TIFF file.
fn in_exif(exif: &[u8]) -> Option<u32> {
    let is_big = match exif.get(..4)? {
        b"II*\0" => false,
        b"MM\0*" => true,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = *exif.get(at..)?.first_chunk()?;
        Some(if is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    let long = |at: usize| {
        let bytes = *exif.get(at..)?.first_chunk()?;
        Some(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    let directory = long(4)? as usize;
    let entries = usize::from(short(directory)?);
    // An entry consists of a tag, a type, a count and a value.
    let mut entries = (0..entries).map(|number| directory + 2 + 12 * number);
    let entry = entries.find(|&at| short(at) == Some(ORIENTATION))?;
    match (short(entry + 2)?, long(entry + 4)?) {
        (1, 1) => exif.get(entry + 8).map(|&byte| u32::from(byte)),
        (3, 1) => short(entry + 8).map(u32::from),
        (4, 1) => long(entry + 8),
        _ => None,
    }
}

/// Orientation number in an XMP packet, where it is an attribute or the text of an element.
fn in_xmp(xmp: &[u8]) -> Option<u32> {
    let digit = |name: &[u8]| {
        let at = xmp.windows(name.len()).position(|window| window == name)?;
        char::from(*xmp.get(at + name.len())?).to_digit(10)
    };
    digit(b"tiff:Orientation=\"").or_else(|| digit(b"tiff:Orientation>"))
}
