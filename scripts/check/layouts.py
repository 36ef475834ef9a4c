"""Layouts of pages beside kept ones: where the boxes are that a page is made of.

`layouts.json` has, of each page and width, the boxes of headers, sections, figures, panels and
lists of controls, each by its path and rounded to 4 pixels: left of the box around it, down from
the end of the one before it, width, height. Fonts and measured numbers differ between machines, so
that places and sizes may differ a little; of pages that show what a trained model says, only
columns are compared."""

import json
from pathlib import Path

KEPT = Path(__file__).resolve().parent / "layouts.json"
# Pixels, or share of the kept number, by which a place or a size may differ: across, and down,
# where a text may take another line.
ACROSS, DOWN = (12, 0.03), (32, 0.12)
# Beginnings of names of pages with answers of a trained model, whose heights are theirs.
OF_MODELS = ("attention", "explain", "report-trained", "serve")
# Differences that one message names.
MOST_NAMED = 3

# Boxes as lists: path, left, gap, width, height. Lists that grow while a page is scrolled have no
# height of their own.
BOXES = """
const parts = 'header, nav, section, .stats, .figures, .figures > figure, main > figure, .panels,'
  + '.panel, .toolbar, .sentence-tools, .sentences, .tablist, .transport, .journey-two, .inspector,'
  // Of what is below a translation no parts: the history beside them is there once there is one.
  + '.stack-group, .station, .sides, .sides > *, .more, .pictures';
const all = [...document.querySelectorAll(parts)].filter(one => one.checkVisibility());
const named = new Map(), counts = new Map(), ends = new Map();
return all.map(one => {
  const around = one.parentElement.closest(parts);
  const own = one.id ? `#${one.id}` : [...one.classList].find(name => !name.startsWith('is-'))
    ?? one.tagName.toLowerCase();
  let path = `${around ? `${named.get(around)}/` : ''}${own}`;
  const number = (counts.get(path) ?? 0) + 1;
  counts.set(path, number);
  if (!one.id && number > 1) path += ` ${number}`;
  named.set(one, path);
  const box = one.getBoundingClientRect();
  const at = around?.getBoundingClientRect() ?? { left: 0, top: -scrollY };
  const gap = box.top - (ends.get(around) ?? at.top);
  ends.set(around, box.bottom);
  const height = one.matches('#sentences, .sentences') ? 0 : box.height;
  const round = value => 4 * Math.round(value / 4);
  return [path, ...[box.left - at.left, gap, box.width, height].map(round)];
});
"""


def differs(ours, kept, allowed):
    pixels, share = allowed
    return abs(ours - kept) > max(pixels, share * abs(kept))


class Layouts:
    """Kept layouts, which pages are compared with; with `keep`, those that are kept anew."""

    def __init__(self, keep):
        self.keep = keep
        # Pages and widths that were kept anew, in the first theme that they were seen in.
        self.anew = set()
        self.kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}

    def differences(self, page, width, boxes):
        """How boxes of a page differ from the kept ones, in words."""
        if self.keep and (page, width) not in self.anew:
            self.anew.add((page, width))
            self.kept.setdefault(page, {})[str(width)] = boxes
            return []
        kept = self.kept.get(page, {}).get(str(width))
        if kept is None:
            return ["no layout is kept: --keep-layouts keeps this one"]
        of_model = page.startswith(OF_MODELS)
        kept, ours = ({path: box for path, *box in own} for own in (kept, boxes))
        found = [f"{path} is gone" for path in kept if path not in ours]
        found += [f"{path} is new" for path in ours if path not in kept]
        names = [("left", ACROSS), ("gap", DOWN), ("width", ACROSS), ("height", DOWN)]
        for path in kept.keys() & ours.keys():
            for (name, allowed), was, now in zip(names, kept[path], ours[path]):
                if of_model and allowed is DOWN:
                    continue
                if differs(now, was, allowed):
                    found.append(f"{path}: {name} {now}, kept {was}")
        return sorted(found)

    def check(self, check, page, width, theme, boxes):
        """Checks the boxes of a page."""
        found = self.differences(page, width, boxes)
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        check(not found, f"{page}, {theme}, {width}: {'; '.join(found[:MOST_NAMED]) + more}"
              if found else f"{page}, {theme}, {width}: laid out as it was kept")

    def write(self):
        """Writes the kept layouts, a line for each page and width."""
        lines = []
        for page, widths in sorted(self.kept.items()):
            own = [f"  {json.dumps(width)}: {json.dumps(boxes, ensure_ascii=False)}"
                   for width, boxes in sorted(widths.items(), key=lambda one: int(one[0]))]
            lines.append(f" {json.dumps(page)}: {{\n" + ",\n".join(own) + "}")
        KEPT.write_text("{\n" + ",\n".join(lines) + "}\n")
