//! Tokenizers of models from fairseq: XLM-R, mBART and NLLB. Their folders may have only a
//! SentencePiece model.
//!
//! In fairseq's vocabularies, `<s>`, `<pad>`, `</s>` and `<unk>` come first. They replace the first
//! three pieces of the SentencePiece model, `<unk>`, `<s>` and `</s>`; the id of every other piece
//! is its index in the model plus one. After the pieces come the tokens of languages and `<mask>`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::files::{Files, spelling};
use super::pieces::Divides;
use super::sentence_piece::SentencePieceModel;
use super::{ADDED_TOKENS, SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG, pieces};

/// Tokens that come before the pieces of the SentencePiece model.
const FIRST: [&str; 4] = ["<s>", "<pad>", "</s>", "<unk>"];
/// Number of pieces at the beginning of the SentencePiece model that [`FIRST`] replaces.
const REPLACED: usize = 3;
/// Token that stands in place of hidden words.
const MASK: &str = "<mask>";

/// Languages of mBART (Liu et al. 2020), in the order of their ids.
const MBART: &str = "\
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT \
    lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN";
/// Further languages of mBART-50 (Tang et al. 2020), whose ids follow those of mBART's languages.
const MBART_50: &str = "\
    af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF \
    pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI";
/// Languages of NLLB-200 (NLLB Team 2022), in the order of their ids.
const NLLB: &str = "\
    ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab \
    arb_Arab ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn \
    bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt \
    bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn cym_Latn \
    dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn \
    ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn \
    gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn \
    hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn \
    kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn \
    kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kon_Latn kor_Hang kmr_Latn lao_Laoo \
    lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn lug_Latn \
    luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn \
    mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva \
    nso_Latn nus_Latn nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn \
    por_Latn prs_Arab pbt_Arab quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng \
    scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn sna_Latn snd_Arab som_Latn sot_Latn \
    spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn tam_Taml \
    tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn \
    tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab \
    uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans \
    zho_Hant zul_Latn";

/// Makes the content of a `tokenizer.json` from `bytes`, the content of a SentencePiece model.
///
/// Added tokens keep the ids that other files of the folder give them. If these files give no ids,
/// the ids of the languages and of `<mask>` are those of the published models.
///
/// # Errors
/// If `bytes` is not such a model, or the folder does not say which published tokenizer it has.
pub(super) fn tokenizer(bytes: &[u8], files: &Files) -> Result<String> {
    let model = SentencePieceModel::read(bytes)?;
    let is_first =
        |(at, name): (usize, &str)| model.pieces.get(at).is_some_and(|piece| piece.text == name);
    if !["<unk>", "<s>", "</s>"].into_iter().enumerate().all(is_first) {
        bail!("the first pieces are not <unk>, <s> and </s>, as fairseq has them");
    }
    let pieces = model.pieces[REPLACED..].iter().map(|piece| piece.text.as_str());
    let mut tokens: Vec<&str> = FIRST.into_iter().chain(pieces).collect();
    let named = languages(files)?;
    let described = described(files);
    let known: BTreeSet<&str> = tokens.iter().copied().collect();
    // If the folder gives no ids to further tokens, languages and `<mask>` are added after the
    // pieces. Otherwise, its tokens are added later, with the ids that it gives them.
    if described.iter().all(|token| known.contains(token)) {
        let more = named.iter().map(String::as_str).chain([MASK]);
        tokens.extend(more.filter(|token| !known.contains(token)));
    }
    let ids: BTreeMap<String, u32> =
        tokens.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), id)).collect();
    if ids.len() < tokens.len() {
        bail!("two pieces, or a piece and a language, have the same spelling");
    }
    let special: Vec<&str> =
        FIRST.into_iter().chain(named.iter().map(String::as_str)).chain([MASK]).collect();
    let (divides, codes) = (Divides::AsTokenizers, BTreeSet::new());
    let converted =
        pieces::tokenizer(&model, divides, &ids, tokens.len(), "<unk>", &special, &codes)?;
    let mut file: Value = serde_json::from_str(&converted.json)?;
    let added = file["added_tokens"].as_array_mut().into_iter().flatten();
    for mask in added.filter(|token| token["content"] == MASK) {
        // `<mask>` also stands in place of the space before it.
        mask["lstrip"] = json!(true);
    }
    if named.is_empty() {
        file["post_processor"] = rows();
    }
    Ok(file.to_string())
}

/// Tokens to which the folder's files, apart from the SentencePiece model, give ids.
fn described(files: &Files) -> Vec<&str> {
    let of_config = files.keys(TOKENIZER_CONFIG)["added_tokens_decoder"].as_object();
    let of_config = of_config.into_iter().flatten().filter_map(|(_, token)| spelling(token));
    let of_file = files.keys(ADDED_TOKENS).as_object().into_iter().flatten();
    of_config.chain(of_file.map(|(token, _)| token.as_str())).collect()
}

/// Tokens of the languages: those that the folder lists or, if it lists none, those of the
/// published model.
///
/// # Errors
/// When neither the class of the tokenizer nor the type of the model is known.
fn languages(files: &Files) -> Result<Vec<String>> {
    let usual = if files.is_of("XLMRoberta", "xlm-roberta") {
        return Ok(Vec::new());
    } else if files.is_of("MBart50", "") {
        format!("{MBART} {MBART_50}")
    } else if files.is_of("MBart", "mbart") {
        MBART.to_owned()
    } else if files.is_of("Nllb", "m2m_100") {
        NLLB.to_owned()
    } else {
        bail!(
            "{TOKENIZER_CONFIG}: tokenizer_class is {:?}: only the tokenizers of XLM-R, mBART and \
             NLLB are known to number pieces of this file",
            files.class()
        );
    };
    let listed = |key: &str| -> Vec<String> {
        let lists = [SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG].map(|file| &files.keys(file)[key]);
        let list = lists.into_iter().find_map(Value::as_array).into_iter().flatten();
        list.filter_map(spelling).filter(|token| *token != MASK).map(str::to_owned).collect()
    };
    let listed_tokens = ["additional_special_tokens", "extra_special_tokens"].map(listed);
    let usual = usual.split(' ').map(str::to_owned).collect();
    Ok(listed_tokens.into_iter().find(|list| !list.is_empty()).unwrap_or(usual))
}

/// Post-processor of XLM-R, which makes `<s> A </s>` of one text, and `<s> A </s> </s> B </s>` of
/// two.
fn rows() -> Value {
    let mark = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
    let (begin, end) = (mark("<s>"), mark("</s>"));
    json!({
        "type": "TemplateProcessing",
        "single": [begin, text("A"), end],
        "pair": [begin, text("A"), end, end, text("B"), end],
        "special_tokens": {
            "<s>": { "id": "<s>", "ids": [0], "tokens": ["<s>"] },
            "</s>": { "id": "</s>", "ids": [2], "tokens": ["</s>"] },
        },
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use taper_data::{Task, Tokenizer};

    /// Tokenizer of a folder that has only a SentencePiece model and, if `described`, the settings
    /// that Transformers saves with it. Also returns the results that are expected.
    fn read(class: &str, described: bool) -> (Tokenizer, Value) {
        let golden = Path::new("tests/golden/fairseq").join(class);
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["sentencepiece.bpe.model", "config.json", "tokenizer_config.json"] {
            if described || name != "tokenizer_config.json" {
                fs::copy(golden.join(name), folder.path().join(name)).expect("a file");
            }
        }
        if !described {
            let config = format!(r#"{{"tokenizer_class": "{class}"}}"#);
            fs::write(folder.path().join("tokenizer_config.json"), config).expect("a file");
        }
        let expected = fs::read_to_string(golden.join("expected.json")).expect("a file");
        let expected: Value = serde_json::from_str(&expected).expect("JSON");
        let size = expected["size"].as_u64().expect("a size") as usize;
        let task = Task::MaskedLanguageModel;
        let config = fs::read_to_string(folder.path().join("config.json")).expect("a file");
        let config: Value = serde_json::from_str(&config).expect("JSON");
        let folder = (folder.path(), &config);
        let pair = super::super::read(folder, size, (task, 1), &mut Vec::new());
        (pair.expect("a tokenizer").source().clone(), expected)
    }

    /// The expected ids come from the slow tokenizers of Transformers, see
    /// `scripts/golden/translation/fairseq.py`.
    #[test]
    fn pieces_have_the_ids_of_slow_tokenizers() {
        for class in ["XLMRobertaTokenizer", "MBartTokenizer", "MBart50Tokenizer", "NllbTokenizer"]
        {
            for described in [true, false] {
                let (tokenizer, expected) = read(class, described);
                for case in expected["texts"].as_array().expect("texts") {
                    let text = case["text"].as_str().expect("a text");
                    let ids = tokenizer.encode(text).expect("ids");
                    assert_eq!(json!(ids), case["ids"], "{class}: {text:?}");
                }
                // Without settings in the folder, Transformers 4 gives NLLB's <mask> the id that
                // its first language has in all published models.
                if class == "NllbTokenizer" && !described {
                    let pieces = expected["pieces"].as_u64().expect("a number");
                    let id = |token: &str| tokenizer.id(token).map(u64::from);
                    assert_eq!(id("ace_Arab"), Some(pieces + 1));
                    assert_eq!(id("zul_Latn"), Some(pieces + 202));
                    assert_eq!(id("<mask>"), Some(pieces + 203));
                    continue;
                }
                for (token, id) in expected["tokens"].as_object().expect("tokens") {
                    assert_eq!(json!(tokenizer.id(token)), *id, "{class}: {token}");
                }
            }
        }
    }
}
