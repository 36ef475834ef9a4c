//! Pages in one file. They have text, figures and data, fit light and dark themes, and need no
//! network.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::colours::{self, Theme};
use crate::html::escape;
use crate::svg::class_rules;

/// Style of every page: first the sizes, then the parts of pages.
const STYLES: [&str; 2] = [include_str!("style.css"), include_str!("parts.css")];
/// Scripts of every page: first the tools, then the interactive parts, which use the tools.
const SCRIPTS: [&str; 6] = [
    include_str!("page.js"),
    include_str!("parts/tabs.js"),
    include_str!("parts/matrix.js"),
    include_str!("parts/ribbons.js"),
    include_str!("parts/parallel.js"),
    include_str!("parts/charts.js"),
];
/// Style, script and licence of uPlot. The script draws the charts of pages that have figures.
const CHARTS: [&str; 3] = [
    include_str!("../../assets/uplot/uPlot.min.css"),
    include_str!("../../assets/uplot/uPlot.iife.min.js"),
    include_str!("../../assets/uplot/LICENSE"),
];

/// The language of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Chinese, in simplified characters.
    Chinese,
}

impl Language {
    /// Code of the language in HTML.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh-Hans",
        }
    }

    /// Chooses between two texts: returns the one in this language.
    #[must_use]
    pub const fn choose<'a>(self, english: &'a str, chinese: &'a str) -> &'a str {
        match self {
            Self::English => english,
            Self::Chinese => chinese,
        }
    }
}

/// An HTML page in one file. It loads nothing from elsewhere, and only its own style and script can
/// run. To ensure this, the page has a policy (Content Security Policy Level 3) that names its
/// style and its script by their hashes.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Language.
    pub language: Language,
    /// Title and heading, as plain text.
    pub title: String,
    /// Content as HTML. Text from other sources must pass through [`escape`].
    pub body: String,
    /// Style that is added to the style of every page. A `style` attribute in the body has no
    /// effect, because the policy forbids it.
    pub style: String,
    /// Script that is added after the scripts of every page.
    pub script: String,
    /// Data for scripts. Each value has an id, under which a script reads it: `taper.data('id')`.
    pub data: Vec<(String, Value)>,
    /// Whether scripts may call the server that the page comes from. If not, they may call no
    /// server.
    pub asks_server: bool,
    /// Whether scripts may run WebAssembly, and start web workers whose code is in the page.
    pub runs_module: bool,
}

impl Page {
    /// Makes the HTML text of the page.
    #[must_use]
    pub fn html(&self) -> String {
        let choose = |english, chinese| self.language.choose(english, chinese);
        let (style, script) = (self.whole_style(), self.whole_script());
        let mut data = String::new();
        for (id, value) in &self.data {
            // In JSON, these two characters occur only in strings, where they can be escaped.
            // Without the escape, `</script` in a string would end the script.
            let json = value.to_string().replace('<', "\\u003c").replace('>', "\\u003e");
            // Writing to a string does not fail.
            let _ = writeln!(
                data,
                "<script type=\"application/json\" id=\"{}\">{json}</script>",
                escape(id)
            );
        }
        let title = escape(&self.title);
        format!(
            "<!doctype html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#main\">{}</a>\n\
             <header><h1>{title}</h1><button type=\"button\" id=\"theme\">{}</button></header>\n\
             <main id=\"main\" tabindex=\"-1\">\n{}\n</main>\n{data}<script>{script}</script>\n\
             </body>\n</html>\n",
            self.language.code(),
            self.policy(),
            choose("Skip to the content", "跳到正文"),
            choose("Light or dark", "浅色或深色"),
            self.body,
        )
    }
}

impl Page {
    /// Policy that restricts what the page can load and run (Content Security Policy Level 3). The
    /// page contains this policy. A server may also send it as a header of the page.
    #[must_use]
    pub fn policy(&self) -> String {
        let connections = if self.asks_server { "connect-src 'self'; " } else { "" };
        let (module, threads) = match self.runs_module {
            true => (" 'wasm-unsafe-eval'", "worker-src blob:; "),
            false => ("", ""),
        };
        format!(
            "default-src 'none'; style-src '{}'; script-src '{}'{module}; img-src data:; \
             {connections}{threads}base-uri 'none'; form-action 'none'",
            hash(&self.whole_style()),
            hash(&self.whole_script()),
        )
    }

    /// Whether the page has interactive figures.
    fn has_charts(&self) -> bool {
        self.body.contains("data-plot=")
    }

    fn whole_style(&self) -> String {
        let [charts, ..] = if self.has_charts() { CHARTS } else { Default::default() };
        format!("{}{}{charts}{}{}", theme_rules(), class_rules(), STYLES.concat(), self.style)
    }

    fn whole_script(&self) -> String {
        let (mut before, mut after) = (String::new(), "");
        if self.has_charts() {
            let [_, library, licence] = CHARTS;
            before = format!("/*!\n{licence}\n*/\n{library}\n");
            after = "taper.plots();\n";
        }
        format!("'use strict';\n{before}{}\n{after}{}", SCRIPTS.concat(), self.script)
    }
}

/// Hash that names an allowed style or script in a policy.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// CSS rules that set the colours of figures for light and for dark pages.
fn theme_rules() -> String {
    let variable = |colour: colours::Colour| {
        let [light, dark] = [Theme::Light, Theme::Dark].map(|theme| colour.hex(theme));
        format!("{}:light-dark({light},{dark});", colour.variable)
    };
    format!(
        ":root{{color-scheme:light dark;{}}}\n",
        colours::all().map(variable).collect::<String>()
    )
}
