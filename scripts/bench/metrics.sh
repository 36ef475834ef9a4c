#!/usr/bin/env bash
# Times `taper bleu` against sacreBLEU's program, process against process, on made-up text:
# medians of RUNS runs each, their ratio, and whether the two printed the same score.
#
#   scripts/bench/metrics.sh [LINES] [RUNS] [RUNS OF SACREBLEU]      (default 100000 5 5)
#
# Needs `sacrebleu` on the path, or its path in SACREBLEU_PROGRAM; builds taper unless TAPER
# names the program. METRICS="BLEU TER" measures those alone: sacreBLEU's TER takes minutes for
# each run of 100,000 lines.
set -euo pipefail
cd "$(dirname "$0")/../.."

lines=${1:-100000}
runs=${2:-5}
reference_runs=${3:-$runs}
sacrebleu=${SACREBLEU_PROGRAM:-sacrebleu}
if [ -z "${TAPER:-}" ]; then
  cargo build --release --quiet
  TAPER=target/release/taper
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Sentences of about 22 words with the frequencies of natural text, no two alike, and
# translations with words replaced, dropped, repeated and moved, at the quality of about 35 BLEU.
python3 - "$folder" "$lines" <<'PYTHON'
import itertools
import random
import sys

folder, count = sys.argv[1], int(sys.argv[2])
rng = random.Random(4)
syllables = [a + b + c for a in "bdfghklmnprstvw" for b in "aeiou" for c in ("", "n", "r", "s", "t")]
vocabulary = sorted({"".join(rng.choice(syllables) for _ in range(rng.choice([1, 2, 2, 3, 4]))) for _ in range(40000)}, key=len)
weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(len(vocabulary))))
with open(f"{folder}/reference", "w") as references, open(f"{folder}/hypothesis", "w") as hypotheses:
    for _ in range(count):
        words = rng.choices(vocabulary, cum_weights=weights, k=max(3, round(rng.gauss(22, 9))))
        if rng.random() < 0.5:
            words[rng.randrange(len(words))] += ","
        translation = []
        for word in words:
            chance = rng.random()
            if chance < 0.16:
                translation.append(rng.choices(vocabulary, cum_weights=weights)[0])
            elif chance < 0.20:
                continue
            else:
                translation += [word] * (2 if chance < 0.22 else 1)
        if len(translation) > 6 and rng.random() < 0.5:
            start = rng.randrange(len(translation) - 3)
            block = [translation.pop(start) for _ in range(rng.randint(1, 3))]
            place = rng.randrange(len(translation) + 1)
            translation[place:place] = block
        references.write(" ".join(words).capitalize() + ".\n")
        hypotheses.write((" ".join(translation).capitalize() or words[0]) + ".\n")
PYTHON

# Runs the rest $1 times; leaves the median of the elapsed seconds in `elapsed`, and of the
# processors' seconds, which a busy machine does not stretch, in `busy`.
measure() {
  local index count=$1
  shift
  : >"$folder/times"
  for ((index = 0; index < count; index++)); do
    { time "$@" >"$folder/output" 2>/dev/null; } 2>>"$folder/times"
  done
  elapsed=$(awk '{ print $1 }' "$folder/times" | median)
  busy=$(awk '{ print $2 + $3 }' "$folder/times" | median)
}
TIMEFORMAT='%R %U %S'

median() { sort -g | awk '{ row[NR] = $1 } END { print (row[int((NR + 1) / 2)] + row[int((NR + 2) / 2)]) / 2 }'; }

score() { grep '"score"' "$folder/output"; }

echo "$lines lines, medians of $runs runs of taper and $reference_runs of sacreBLEU, $(nproc) processors"
heading=(metric taper sacreBLEU ratio taper sacreBLEU ratio scores)
printf '%-8s %24s  %24s\n' '' 'seconds elapsed' 'seconds of processors'
printf '%-8s %8s %9s %6s %8s %9s %6s  %s\n' "${heading[@]}"
for metric in ${METRICS:-BLEU chrF++ TER}; do
  case "$metric" in
    BLEU) options=(-m bleu) ;;
    chrF++) options=(-m chrf -cw 2) ;;
    TER) options=(-m ter) ;;
    *) echo "METRICS: $metric is not BLEU, chrF++ or TER" >&2 && exit 2 ;;
  esac
  arguments=("$folder/reference" -i "$folder/hypothesis" -w 6 "${options[@]}")
  measure "$runs" "$TAPER" bleu "${arguments[@]}"
  row=("$elapsed" "$busy" "$(score)")
  measure "$reference_runs" "$sacrebleu" "${arguments[@]}"
  same=DIFFERENT
  if [ "${row[2]}" = "$(score)" ]; then same=equal; fi
  awk -v name="$metric" -v ours="${row[0]}" -v theirs="$elapsed" -v our_busy="${row[1]}" -v their_busy="$busy" -v same="$same" \
    'BEGIN { printf "%-8s %8.2f %9.2f %5.0fx %8.2f %9.2f %5.0fx  %s\n", name, ours, theirs, theirs / ours, our_busy, their_busy, their_busy / our_busy, same }'
done
