//! Chat templates, which convert a conversation to the text that a language model reads.
//!
//! Templates are written in Jinja, with the settings and extensions of the library Transformers.
//! Blanks before a block, and the line end after it, are removed. Templates may use `break` and
//! `continue`, Python's methods of strings, lists and dictionaries, `raise_exception`,
//! `strftime_now`, `tojson` and `{% generation %}`. A template may come with a model from an
//! untrusted source, so its time and memory are bounded.

mod json;
mod time;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, escape_formatter};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use taper_data::{Tokenizer, read_regular};
use tokio::sync::oneshot;

use self::json::{require_bounded, to_json};
use self::time::written_time;
use crate::error::Refusal;

/// Name of a file that contains only the template.
const TEMPLATE: &str = "chat_template.jinja";
/// Name of the file with a tokenizer's settings. The file names the special tokens, and may contain
/// the template.
const SETTINGS: &str = "tokenizer_config.json";
/// Largest size of a template in bytes.
const MOST_BYTES: u64 = 1 << 24;
/// Amount of work that a template may do, in the unit of the library `minijinja`. An instruction
/// costs 1, and about 64 bytes of data that the template makes also cost 1. So the limit bounds
/// both the time and the memory of a template.
const FUEL: u64 = 2_000_000;
/// Longest time that a client waits for a template.
const PATIENCE: Duration = Duration::from_secs(5);
/// Size of the stack of a template's thread, in bytes. The system allocates memory only for the
/// part of the stack that is used. Dropping a nested value takes stack for every level; this size
/// suffices for the deepest value that a template can make within the limit [`FUEL`].
const STACK: usize = 512 << 20;
/// Name of the template in messages.
const NAME: &str = "chat template";

/// Chat template of a model.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    /// Source text.
    source: String,
    environment: Environment<'static>,
    /// Special tokens by role: `bos_token` and others.
    tokens: BTreeMap<String, String>,
}

impl PartialEq for ChatTemplate {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.tokens == other.tokens
    }
}

impl ChatTemplate {
    /// Reads the template of a run. It is the first that exists of these: the file
    /// `chat_template.jinja` in the run's folder, the file of this name in the tokenizer's folder,
    /// and the template in the tokenizer's `tokenizer_config.json`. `None` if there is no template.
    ///
    /// # Errors
    /// When a file cannot be read, or its text is not a template.
    pub(crate) fn of_run(root: &Path, tokenizer: &Tokenizer) -> Result<Option<Self>, String> {
        let path = root.join(TEMPLATE);
        let files = tokenizer.folder().map(|folder| &folder.files);
        let own_template = || -> Result<Option<String>> {
            if !path.exists() {
                return Ok(None);
            }
            let bytes = read_regular(&path, MOST_BYTES);
            let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
            let text = String::from_utf8(bytes);
            Ok(Some(text.with_context(|| format!("{}: not UTF-8", path.display()))?))
        };
        let found = own_template().and_then(|own_template| Self::choose(own_template, files));
        found.map_err(|error| taper_run::one_line(&error))
    }

    /// Chooses the run's own template, `own_template`, or else the template in `files`, the files
    /// of the tokenizer.
    fn choose(
        own_template: Option<String>,
        files: Option<&BTreeMap<String, String>>,
    ) -> Result<Option<Self>> {
        let file = |name: &str| files.and_then(|files| files.get(name));
        let settings: serde_json::Value = match file(SETTINGS) {
            Some(text) => serde_json::from_str(text).context(SETTINGS)?,
            None => serde_json::Value::Null,
        };
        let template = match own_template.or_else(|| file(TEMPLATE).cloned()) {
            Some(template) => Some(template),
            None => template_of(&settings["chat_template"])?,
        };
        template.map(|template| Self::new(&template, tokens_of(&settings))).transpose()
    }

    fn new(template: &str, tokens: BTreeMap<String, String>) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, Raised::marked(&message)))
        });
        environment.add_function("strftime_now", |format: String| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            written_time(&format, now.as_secs())
        });
        environment.add_filter("tojson", to_json);
        environment.set_formatter(|output, state, value| {
            require_bounded(value)?;
            escape_formatter(output, state, value)
        });
        environment
            .add_template_owned(NAME, without_generation(template))
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(Self { source: template.to_owned(), environment, tokens })
    }

    /// Renders a conversation with [`render`](Self::render) on a separate thread, so that a slow
    /// template delays no other client. If rendering takes longer than [`PATIENCE`], the thread is
    /// left alone, and ends at the latest when its template has reached the limit [`FUEL`].
    ///
    /// # Errors
    /// Errors of `render`, and an error if rendering takes too long.
    pub(crate) async fn render_aside<T>(self: Arc<Self>, messages: T) -> Result<String, Refusal>
    where
        T: Serialize + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let render = move || drop(reply.send(self.render(&messages)));
        std::thread::Builder::new()
            .name("chat template".to_owned())
            .stack_size(STACK)
            .spawn(render)
            .map_err(|error| Refusal::Failed(format!("cannot start a thread: {error}")))?;
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(rendered)) => rendered,
            Ok(Err(_)) => Err(Refusal::Failed("the chat template failed".to_owned())),
            Err(_) => Err(Refusal::Unfit(format!(
                "the chat template: takes more than {} s",
                PATIENCE.as_secs()
            ))),
        }
    }

    /// Converts a conversation to the form that the model reads, up to the beginning of the answer.
    ///
    /// # Errors
    /// When the template refuses the conversation.
    pub(crate) fn render(&self, messages: &impl Serialize) -> Result<String, Refusal> {
        let mut names: BTreeMap<String, Value> =
            self.tokens.iter().map(|(name, token)| (name.clone(), token.into())).collect();
        names.insert("messages".to_owned(), Value::from(Serde(messages)));
        names.insert("add_generation_prompt".to_owned(), true.into());
        for absent in ["tools", "documents"] {
            names.insert(absent.to_owned(), ().into());
        }
        let rendered =
            self.environment.get_template(NAME).and_then(|template| template.render(names));
        rendered.map_err(|error| match Raised::message_in(&error) {
            Some(message) => Refusal::Malformed(message),
            None => Refusal::Unfit(format!("the chat template: {error}")),
        })
    }
}

/// Returns the template in `setting`, the value of `chat_template` in a tokenizer's settings. If it
/// is a list of named templates, returns the template named `default`. `None` if it is null.
fn template_of(setting: &serde_json::Value) -> Result<Option<String>> {
    let named = |one: &&serde_json::Value| one["name"] == "default";
    Ok(match setting {
        serde_json::Value::Null => None,
        serde_json::Value::String(template) => Some(template.clone()),
        serde_json::Value::Array(several) => {
            let default = several.iter().find(named).and_then(|one| one["template"].as_str());
            Some(default.with_context(|| format!("{SETTINGS}: no default chat_template"))?.into())
        }
        _ => bail!("{SETTINGS}: chat_template is not a text"),
    })
}

/// Returns the special tokens that a tokenizer's settings name. If there are no settings, returns
/// the special tokens of tokenizers that Taper has trained.
fn tokens_of(settings: &serde_json::Value) -> BTreeMap<String, String> {
    let Some(settings) = settings.as_object() else {
        let usual = [("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")];
        return usual.map(|(name, token)| (name.to_owned(), token.to_owned())).into();
    };
    let token = |(name, value): (&String, &serde_json::Value)| {
        let token = value.as_str().or_else(|| value["content"].as_str());
        let is_token = name.ends_with("_token");
        token.filter(|_| is_token).map(|token| (name.clone(), token.to_owned()))
    };
    settings.iter().filter_map(token).collect()
}

/// Functions for messages that a template raises with `raise_exception` about a conversation. Such
/// a message begins with a mark, which distinguishes it from messages of the library `minijinja`.
struct Raised;

impl Raised {
    const MARK: char = '\u{1}';

    fn marked(message: &str) -> String {
        format!("{}{message}", Self::MARK)
    }

    fn message_in(error: &Error) -> Option<String> {
        error.detail()?.strip_prefix(Self::MARK).map(str::to_owned)
    }
}

/// Replaces `{% generation %}` and `{% endgeneration %}` by `{% if true %}` and `{% endif %}`.
/// These blocks only mark text for training, and the text inside them is rendered unchanged.
fn without_generation(template: &str) -> String {
    let mut rewritten = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find("{%") {
        let inside = &rest[at + 2..];
        let words = inside.trim_start_matches(['-', '+']).trim_start();
        let start = at + 2 + (inside.len() - words.len());
        rewritten += &rest[..start];
        let block = [("endgeneration", "endif"), ("generation", "if true")].into_iter().find(
            |(name, _)| {
                let behind = words.strip_prefix(name).map(|behind| {
                    behind.trim_start().trim_start_matches(['-', '+']).starts_with("%}")
                });
                behind == Some(true)
            },
        );
        rest = match block {
            Some((name, other)) => {
                rewritten += other;
                &words[name.len()..]
            }
            None => words,
        };
    }
    rewritten + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    /// Message whose keys are in the order in which clients send them.
    #[derive(Debug, Serialize, Deserialize)]
    struct Message {
        role: String,
        content: serde_json::Value,
    }

    #[derive(Debug, Deserialize)]
    struct Case {
        template: String,
        messages: Vec<Message>,
        text: Option<String>,
        error: Option<String>,
    }

    fn rendered(template: &str, messages: &[Message]) -> Result<String, Refusal> {
        let tokens = [("bos_token", "<s>"), ("eos_token", "</s>")];
        let tokens = tokens.map(|(name, token)| (name.to_owned(), token.to_owned())).into();
        let template = ChatTemplate::new(template, tokens).expect("a template");
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK);
            let render = thread.spawn_scoped(scope, || template.render(&messages));
            render.expect("a thread").join().expect("no panic")
        })
    }

    #[test]
    fn templates_are_rendered_as_transformers_does() {
        let cases = include_str!("../../../tests/golden/chat-templates.json");
        let cases: Vec<Case> = serde_json::from_str(cases).expect("JSON");
        assert!(cases.len() >= 20);
        for case in cases {
            let expected = match case.error {
                Some(error) => Err(Refusal::Malformed(error)),
                None => Ok(case.text.expect("text")),
            };
            assert_eq!(rendered(&case.template, &case.messages), expected, "{}", case.template);
        }
    }

    #[test]
    fn what_a_template_may_take_is_bounded() {
        let messages = [Message { role: "user".to_owned(), content: "a".into() }];
        let endless = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}\
                       {% endfor %}";
        assert!(matches!(rendered(endless, &messages), Err(Refusal::Unfit(_))));
        for hostile in [
            "{{ messages|tojson(indent=100000000000000) }}",
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x }}",
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns|tojson }}",
            "{% set ns = namespace(x=[]) %}{% for _ in range(20000) %}{% set ns.x = [ns.x] %}\
             {% endfor %}{{ ns.x }}",
            "{{ [0] * 9999999 }}",
        ] {
            assert!(matches!(rendered(hostile, &messages), Err(Refusal::Unfit(_))), "{hostile}");
        }
        assert!(ChatTemplate::new("{% for %}", BTreeMap::new()).is_err());
        assert!(rendered("{{ messages.nothing.more }}", &messages).is_err());
    }

    #[test]
    fn a_value_without_a_form_in_json_is_an_error_as_in_transformers() {
        let messages = [Message { role: "user".to_owned(), content: "a".into() }];
        for value in
            ["nothing", "[nothing]", "{'a': messages[0].name}", "namespace", "{nothing: 1}"]
        {
            let refused = rendered(&format!("{{{{ {value} | tojson }}}}"), &messages);
            assert!(matches!(refused, Err(Refusal::Unfit(_))), "{value}: {refused:?}");
        }
        let separators = "{{ messages | tojson(separators=[',']) }}";
        assert!(matches!(rendered(separators, &messages), Err(Refusal::Unfit(_))));
    }

    #[test]
    fn a_template_is_found_where_folders_have_it() {
        let chosen = |own: Option<&str>, files: &[(&str, &str)]| {
            let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            ChatTemplate::choose(own.map(str::to_owned), Some(&files.collect()))
        };
        let text = |chosen: Result<Option<ChatTemplate>>| {
            chosen.expect("read").expect("a template").render(&[(); 0]).expect("text")
        };
        let settings = (SETTINGS, r#"{"bos_token": {"content": "<b>"}}"#);
        assert!(matches!(chosen(None, &[settings]), Ok(None)));
        assert_eq!(text(chosen(Some("own{{bos_token}}"), &[settings])), "own<b>");
        let one = r#"{"bos_token": "<c>", "chat_template": "one{{bos_token}}"}"#;
        assert_eq!(text(chosen(None, &[(SETTINGS, one)])), "one<c>");
        let several = json!({ "chat_template": [
            { "name": "tools", "template": "no" }, { "name": "default", "template": "two" },
        ] });
        let several = several.to_string();
        assert_eq!(text(chosen(None, &[(SETTINGS, &several)])), "two");
        assert_eq!(text(chosen(None, &[(SETTINGS, &several), (TEMPLATE, "three")])), "three");
        assert_eq!(text(chosen(Some("four"), &[(TEMPLATE, "three")])), "four");
        assert!(chosen(Some("{{"), &[]).is_err());
        assert_eq!(text(ChatTemplate::choose(Some("{{eos_token}}".to_owned()), None)), "</s>");
    }
}
