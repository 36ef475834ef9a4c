//! Web page of the server: one self-contained HTML file in each language. Its scripts send requests
//! only to the server that the page came from.

use anyhow::{Context, Result};
use serde_json::Value;
use taper_plots::{Language, Page, escape};
use taper_run::translation::DocumentFile;

/// Texts of the page, by language and name.
const TEXTS: &str = include_str!("texts.json");
/// Body of the page, in which `{{name}}` stands for the text with this name.
const BODY: &str = include_str!("body.html");
const STYLE: &str = include_str!("style.css");
/// Scripts of the page, in this order.
const SCRIPTS: [&str; 12] = [
    include_str!("ask.js"),
    include_str!("attention.js"),
    include_str!("words.js"),
    include_str!("keep.js"),
    include_str!("documents.js"),
    include_str!("translate.js"),
    include_str!("chat.js"),
    include_str!("prompts.js"),
    include_str!("labels.js"),
    include_str!("spans.js"),
    include_str!("pictures.js"),
    include_str!("page.js"),
];

/// Page in each language. Each value is the HTML of the page, and its Content Security Policy.
#[derive(Debug)]
pub(crate) struct Pages {
    english: (String, String),
    chinese: (String, String),
}

impl Pages {
    /// Makes the page in each language.
    ///
    /// # Errors
    /// When a text is missing.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { english: page(Language::English)?, chinese: page(Language::Chinese)? })
    }

    /// Returns the HTML and the policy of the page in the language `chosen`. If it is `None`, uses
    /// the language that is preferred in `accepts`, the value of a browser's header
    /// `Accept-Language`.
    pub(crate) fn choose(&self, chosen: Option<&str>, accepts: &str) -> (&str, &str) {
        let is_chinese = match chosen {
            Some(code) => code.starts_with("zh"),
            None => prefers_chinese(accepts),
        };
        let (page, policy) = if is_chinese { &self.chinese } else { &self.english };
        (page, policy)
    }
}

/// Whether `accepts`, the value of a header `Accept-Language`, prefers Chinese to English (RFC
/// 9110, section 12.5.4).
fn prefers_chinese(accepts: &str) -> bool {
    let quality = |language: &str| -> f64 {
        let ranges = accepts.split(',').filter_map(|range| {
            let (code, parameters) = range.split_once(';').unwrap_or((range, ""));
            let is_own = code.trim().to_ascii_lowercase().starts_with(language);
            let quality = parameters.trim().strip_prefix("q=").unwrap_or("1");
            is_own.then(|| quality.trim().parse().unwrap_or(0.0))
        });
        ranges.fold(0.0, f64::max)
    };
    quality("zh") > quality("en")
}

fn page(language: Language) -> Result<(String, String)> {
    let (this_language, other) = (language.choose("en", "zh"), language.choose("zh", "en"));
    let mut texts: Value = serde_json::from_str(TEXTS).context("texts.json")?;
    let mut texts = texts[this_language].take();
    let endings: Vec<String> = DocumentFile::endings().map(|one| format!(".{one}")).collect();
    texts["document-endings"] = endings.join(",").into();
    texts["other-code"] = other.into();
    texts["other-name"] = language.choose("中文", "English").into();
    let mut body = String::with_capacity(2 * BODY.len());
    let mut parts = BODY.split("{{");
    body += parts.next().unwrap_or_default();
    for part in parts {
        let (name, after) = part.split_once("}}").context("body.html: {{ without }}")?;
        let text = texts[name]
            .as_str()
            .with_context(|| format!("texts.json: no {this_language} {name}"))?;
        body += &escape(text);
        body += after;
    }
    let page = Page {
        language,
        title: texts["title"].as_str().context("texts.json: no title")?.to_owned(),
        body,
        style: STYLE.to_owned(),
        script: SCRIPTS.concat(),
        data: vec![("page-texts".to_owned(), texts)],
        asks_server: true,
        runs_module: false,
    };
    Ok((page.html(), page.policy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_languages_say_the_same_things() {
        let texts: Value = serde_json::from_str(TEXTS).expect("JSON");
        let names = |language: &str| -> Vec<String> {
            texts[language].as_object().expect("texts").keys().cloned().collect()
        };
        assert_eq!(names("en"), names("zh"));
        // Both languages have the same placeholders: names in braces, which the page replaces.
        let filled = |text: &str| -> Vec<String> {
            let parts = text.split('{').skip(1);
            let mut names: Vec<String> =
                parts.map(|part| part.split('}').next().unwrap_or_default().to_owned()).collect();
            names.sort();
            names
        };
        for name in names("en") {
            let [english, chinese] =
                ["en", "zh"].map(|language| filled(texts[language][&name].as_str().expect("text")));
            assert_eq!(english, chinese, "{name}");
        }
    }

    #[test]
    fn scripts_say_only_what_there_is() {
        let texts: Value = serde_json::from_str(TEXTS).expect("JSON");
        for script in SCRIPTS {
            let parts: Vec<&str> = script.split("say('").collect();
            for two in parts.windows(2) {
                // A part that ends in a dot is followed by a call of `card.say`, which takes a
                // message and not the name of a text.
                if two[0].ends_with('.') {
                    continue;
                }
                let name = two[1].split('\'').next().expect("a name");
                assert!(texts["en"][name].is_string(), "{name}");
            }
        }
    }

    #[test]
    fn a_browser_gets_the_language_that_it_asks_for() {
        for (accepts, is_chinese) in [
            ("zh-CN,zh;q=0.9,en;q=0.8", true),
            ("en-US,en;q=0.9,zh;q=0.8", false),
            ("de,zh;q=0.5", true),
            ("de", false),
            ("", false),
            ("zh;q=;,;;", false),
        ] {
            assert_eq!(prefers_chinese(accepts), is_chinese, "{accepts}");
        }
        let pages = Pages::new().expect("pages");
        let (page, policy) = pages.choose(Some("zh"), "en");
        assert!(page.contains("lang=\"zh-Hans\"") && page.contains("翻译"));
        assert!(policy.contains("connect-src 'self'") && !policy.contains("unsafe"), "{policy}");
        assert!(page.contains("accept=\".html,.htm,"), "documents that the program reads");
        assert!(!page.contains("{{") && !page.contains("=\"http") && !page.contains("url("));
    }
}
