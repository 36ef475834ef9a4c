"""Makes chat-templates.json: conversations as Transformers writes them by chat templates.

The templates are short ones in the manners of ChatML, Llama 2 and 3, Zephyr, Gemma and Qwen, and others for what each
feature of the language is used for. What a template refuses has the message in place of the text.
"""

import json

from transformers.utils.chat_template_utils import render_jinja_template

from ..common import ROOT

FILE = ROOT / "crates" / "serve" / "tests" / "golden" / "chat-templates.json"

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  Hello <b>\n\"you\"  "},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "我爱你 🎉"},
]
PARTS = [{"role": "user", "content": [{"type": "text", "text": text} for text in ["one", "two"]]}]

TEMPLATES = [
    # ChatML
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    # Llama 2
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    # Llama 3
    "{{- bos_token }}\n{%- if custom_tools is defined %}\n    {%- set tools = custom_tools %}\n{%- endif %}\n{%- if not tools is defined %}\n    {%- set tools = none %}\n{%- endif %}\n{%- for message in messages %}\n    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}\n{%- endif %}\n",
    # Zephyr, whose lines are blocks
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    # Gemma
    "{{ bos_token }}{% if messages[0]['role'] == 'tool' %}{{ raise_exception('no') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    # Refused
    "{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% endfor %}",
    # Qwen: JSON, namespaces, slices
    "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi_step_tool and message.role == 'user' and not(message.content.startswith('<tool_response>')) %}{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}{{ ns.last_query_index }} {{ messages | tojson }}",
    "{{ messages[1] | tojson(indent=2) }}|{{ messages[3].content | tojson(ensure_ascii=True) }}|{{ {'b': [], 'a': {}, 'c': none, 'd': true, 'e': 1.5} | tojson }}",
    # JSON with all options, of numbers and of keys that are no texts
    "{{ ('\x7f' + messages[0].content) | tojson(ensure_ascii=True) }}{{ '\x7f' | tojson }}{{ messages | tojson(separators=(',', ':')) }}{{ {'b': [1, 2], 'a': 3} | tojson(separators=(' , ', ' : '), sort_keys=true, indent=1) }}",
    "{{ [1.5, 1.0, 100000.0 * 100000000000.0, 1.5 * 1000000.0 * 10000000000.0, 0.0001, 0.00001, 0.000012, 0.0, -2.5, 12345678901234567890] | tojson }}{{ {2: 'a', 1.5: 'b', true: 'c', none: 'd'} | tojson }}",
    # Loop controls, and training's marks
    "{% for message in messages %}{% if message.role == 'system' %}{% continue %}{% endif %}{% if loop.index > 3 %}{% break %}{% endif %}{% generation %}{{ message.content }}{% endgeneration %}{%- generation -%} x {%- endgeneration -%}{% endfor %}",
    # Python's methods and tests
    "{{ messages[0].content.upper() }}{{ messages[1].content.split('\\n')[0].rstrip() }}{{ messages[0].get('name', 'nobody') }}{{ messages[2]['content'].endswith('.') }}{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}{{ messages[0].content is string }}{{ messages is iterable }}{{ messages[0] is mapping }}{{ 'a,b'.replace(',', ';') }}{{ messages | map(attribute='role') | join(',') }}{{ (messages | selectattr('role', 'equalto', 'user') | list) | length }}{{ 'x' in 'xyz' }}{{ messages[-1].role.title() }}",
    # Macros, filters, whitespace
    "{%- macro show(role, content='nothing') -%}\n[{{ role }}: {{ content|trim }}]\n{%- endmacro -%}\n{%- for m in messages %}\n    {{ show(m.role, m.content) }}\n{%- endfor %}\n{{ show('end') }}\n  {# a comment #}\n  {% set x = 1 %}\nlast {{ x }}\n",
    # What is not there
    "{{ nothing }}{% if nothing is defined %}no{% endif %}{{ nothing | default('d') }}{{ tools is none }}{% if not documents %}none{% endif %}{{ messages[0].name is defined }}{{ none }}{{ true }}{{ [1, 'a', none] }}",
]


def main():
    cases = []
    for template in TEMPLATES:
        for messages in [CONVERSATION, CONVERSATION[1:2]]:
            case = {"template": template, "messages": messages}
            try:
                rendered, _ = render_jinja_template(
                    [messages], chat_template=template, add_generation_prompt=True,
                    bos_token="<s>", eos_token="</s>")
                case["text"] = rendered[0]
            except Exception as error:
                if messages is CONVERSATION and "raise_exception" not in template:
                    raise
                if "raise_exception" not in template:
                    continue
                case["error"] = str(error)
            cases.append(case)
    content = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
    rendered, _ = render_jinja_template([PARTS], chat_template=content)
    cases.append({"template": content, "messages": PARTS, "text": rendered[0]})
    FILE.write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")


main()
