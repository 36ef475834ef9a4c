//! Converts the usual spellings of a language code, such as `deu_Latn`, to one code, such as `de`.

/// Pairs of codes for the same language. The second code is the one that the models use. The first
/// code is another spelling, such as the code of ISO 639-3 (as in `deu_Latn`) or of LibreTranslate.
const OTHERS: &str = "\
    afr af ara ar arb ar asm as aze az azj az bel be bul bg ben bn bre br cat ca ces cs cym cy \
    dan da deu de dzo dz ell el eng en epo eo spa es est et ekk et eus eu fas fa pes fa fin fi \
    fra fr gle ga gla gd glg gl guj gu heb he iw he hin hi hrv hr hun hu hye hy ind id isl is \
    ita it jpn ja kat ka kaz kk khm km kan kn kor ko lit lt lav lv lvs lv mkd mk mal ml mon mn \
    khk mn mar mr mya my nob nb no nb nep ne npi ne nld nl ory or pan pa pol pl pbt ps pus ps \
    por pt pb pt ron ro rus ru sin si slk sk slv sl als sq sqi sq srp sr swe sv tam ta tel te \
    tgk tg tha th tur tr uig ug ukr uk uzb uz uzn uz vie vi zho zh cmn zh zt zh";

/// The code that the models use for the language with the code `code`, in lower case and without
/// script and region. A code that is not among [`OTHERS`] is its own result.
pub(super) fn canonical(code: &str) -> String {
    let code = code.trim().to_ascii_lowercase();
    let language = code.split(['-', '_']).next().unwrap_or_default();
    let mut words = OTHERS.split(' ');
    while let (Some(other), Some(canonical_code)) = (words.next(), words.next()) {
        if other == language {
            return canonical_code.to_owned();
        }
    }
    language.to_owned()
}
