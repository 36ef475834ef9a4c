#!/usr/bin/env bash
# Whether a GPU gives right results, in one command and less than ten minutes: a table, and an error
# if anything in it is wrong. Needs no network, no Rust and no Python; with PyTorch, its speed is
# shown beside Taper's.
#
#   scripts/check/gpu.sh [--device cuda|metal|cpu] [--taper FILE] [--devices FILE]
#   scripts/check/gpu.sh --pack OUT.tar.gz [--taper FILE] [--devices FILE]
#
# --taper is the program [default: target/release/taper], --devices the test of the operations
# [default: the newest target/release/deps/devices-*]: what
#   cargo build --release --features cuda
#   cargo test --release --features taper-ops/cuda --workspace --test devices --no-run
# leave. On the CPU, the script itself is what is checked: fewer steps, and nothing is compared with
# PyTorch. --pack puts both, stripped, into an archive with all that the script needs, for a machine
# that has none of it: unpack it there, and run scripts/check/gpu.sh --device cuda in its folder.
set -uo pipefail
cd "$(dirname "$0")/../.."

device=cuda taper=target/release/taper pack=""
devices=$(ls -t target/release/deps/devices-* 2>/dev/null | grep -v '\.d$' | head -n 1)
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=$2 ;;
    --taper) taper=$2 ;;
    --devices) devices=$2 ;;
    --pack) pack=$2 ;;
    *) sed -n '2,17p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
  esac
  shift 2
done
for program in "$taper" "$devices"; do
  [ -x "$program" ] || { echo "there is no program ${program:-devices-*}" >&2; exit 2; }
done

# The libraries of CUDA, where the linker does not know them: the toolkit's, or else PyTorch's.
if [ "$device" = cuda ] && ldd "$taper" | grep -q 'not found'; then
  for name in $(ldd "$taper" | sed -n 's/^[[:space:]]*\(lib[^ ]*\) => not found/\1/p'); do
    found=$(find -L /usr/local/cuda*/ "$(python3 -c 'import sys; print(sys.prefix)' 2>/dev/null)/" \
      -name "$name" -print -quit 2>/dev/null)
    [ -z "$found" ] || LD_LIBRARY_PATH=$(dirname "$found"):${LD_LIBRARY_PATH:-}
  done
  export LD_LIBRARY_PATH
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "$pack" ]; then
  mkdir -p "$work/gpu-check/target/release/deps"
  cp "$taper" "$work/gpu-check/target/release/taper"
  cp "$devices" "$work/gpu-check/target/release/deps/devices-packed"
  strip "$work/gpu-check/target/release/taper" "$work/gpu-check/target/release/deps/devices-packed"
  cp -r --parents scripts/check/gpu.sh scripts/bench scripts/check/counting_gpu \
    configs/quickstart.toml data/everyday-en-zh "$work/gpu-check"
  tar -czf "$pack" -C "$work" gpu-check || exit 1
  size=$(stat -c %s "$pack")
  echo "$pack: $((size >> 20)) MiB"
  [ "$size" -lt $((64 << 20)) ] || { echo "it is larger than 64 MiB" >&2; exit 1; }
  exit 0
fi

steps=200 sentences=100
[ "$device" != cpu ] || { steps=40 sentences=10; }
table=() failed=0

# Notes the outcome of a check: its name, 0 if it passed, and a figure.
note() {
  local outcome=ok
  [ "$2" -eq 0 ] || { outcome=FAILED; failed=1; }
  table+=("$(printf '%-34s %-7s %s' "$1" "$outcome" "$3")")
  echo "-- $1: $outcome, $3"
}

# Trains the quickstart's recipe in f32 into $1, on device $2, with further arguments.
train() {
  local run=$1 on=$2
  shift 2
  "$taper" train configs/quickstart.toml --run "$run" --device "$on" --set dtype=f32 \
    --set "training.max_updates=$steps" --set training.schedule.warmup=20 \
    --set "training.validate_every=$((steps / 2))" --set evaluation.validation_sentences=10 \
    --set 'data.test=[]' --set training.log_every=1 "$@" >>"$work/log" 2>&1
}

# The values of a field of a run's log, one a line.
logged() { sed -n 's/^{"event":"log".*"'"$2"'":\([-0-9.e]*\).*/\1/p' "$1/metrics.jsonl"; }

# Whether an arithmetic condition holds, of numbers that are no integers.
holds() { awk "BEGIN { exit !($1) }"; }

if figure=$(TAPER_TEST_DEVICE=$device "$devices" 2>&1); then
  note "operations, types, odd shapes" 0 "against f64"
else
  note "operations, types, odd shapes" 1 "$(echo "$figure" | grep -m 1 ' in .*: ')"
fi

train "$work/device" "$device"
trained=$?
first=$(logged "$work/device" loss | head -n 1) last=$(logged "$work/device" loss | tail -n 1)
holds "$trained == 0 && ${last:-9} < 0.85 * ${first:-0}"
note "training, $steps updates" $? "loss ${first:-?} to ${last:-?}"

train "$work/host" cpu --set training.max_updates=1 --set training.schedule.kind=constant
train "$work/one" "$device" --set training.max_updates=1 --set training.schedule.kind=constant
for field in loss gradient_norm; do
  ours=$(logged "$work/one" $field | head -n 1) host=$(logged "$work/host" $field | head -n 1)
  holds "${host:-0} > 0 && (${ours:-0} / ${host:-1} - 1)^2 < 1e-8"
  note "one update as on the CPU: $field" $? "${ours:-?}, on the CPU ${host:-?}"
done

# Killed once a checkpoint is there, and resumed: the same weights, to the bit.
train "$work/killed" "$device" 2>/dev/null &
pid=$!
while kill -0 $pid 2>/dev/null && [ ! -d "$work"/killed/checkpoints/step-* ]; do sleep 0.05; done
pkill -KILL -P $pid 2>/dev/null
wait $pid 2>/dev/null
end=$(printf 'checkpoints/step-%08d/model.safetensors' "$steps")
was_killed=$([ -e "$work/killed/$end" ] && echo 0 || echo 1)
"$taper" resume "$work/killed" --device "$device" >>"$work/log" 2>&1
[ "$was_killed" = 1 ] && cmp -s "$work/device/$end" "$work/killed/$end"
note "killed and resumed, to the bit" $? "$(cksum <"$work/killed/$end" 2>/dev/null)"

# What a search says of its translations, and what the model gives them in one pass.
head -n "$sentences" data/everyday-en-zh/test.en >"$work/source"
start=$(date +%s%N)
"$taper" translate "$work/device" --device "$device" --input "$work/source" --json >"$work/found" \
  2>>"$work/log"
elapsed=$((($(date +%s%N) - start) / 1000000))
sed -n 's/.*"translations":\[{"text":"\([^"]*\)".*/\1/p' "$work/found" >"$work/text"
"$taper" score "$work/device" --device "$device" --source "$work/source" --target "$work/text" \
  2>>"$work/log" | cut -f 1 >"$work/forced"
same=$(sed -n 's/.*"log_probability":\([-0-9.e]*\).*/\1/p' "$work/found" | paste - "$work/forced" |
  awk '($1 - $2)^2 < 1e-6 * $1^2 { same++ } END { print same + 0 }')
# A translation may be cut into other tokens than it was made of.
holds "$same >= 0.8 * $sentences"
note "decoding as in one pass" $? "$same of $sentences"

"$taper" translate "$work/device" --device cpu --input "$work/source" --json 2>>"$work/log" |
  sed -n 's/.*"translations":\[{"text":"\([^"]*\)".*/\1/p' >"$work/of_host"
same=$(paste -d '\t' "$work/text" "$work/of_host" |
  awk -F '\t' '$1 == $2 { n++ } END { print n + 0 }')
holds "$same >= 0.95 * $sentences"
note "translations as on the CPU" $? "$same of $sentences"

if train "$work/memory" "$device" --memory 1MiB; then
  note "memory that does not suffice" 1 "training began"
else
  grep -q 'of memory' <(tail -n 3 "$work/log")
  note "memory that does not suffice" $? "refused"
fi

rate=$(logged "$work/device" tokens_per_second | tail -n 1)
note "training speed, tokens a second" 0 "${rate:-?}"
note "translating $sentences sentences, ms" 0 "$elapsed"
if [ "$device" = cuda ] && python3 -c 'import torch' 2>/dev/null; then
  # Batches that a host bounds, and those that a GPU is trained with.
  for size in "64 32" "543 46"; do
    # shellcheck disable=SC2086
    python3 scripts/check/counting_gpu/count.py --write "$work/batches" $size
    for dtype in f32 bf16; do
      ours=$("$taper" bench train --batches "$work/batches" --device cuda --dtype $dtype --json |
        sed -n 's/.*"target_tokens_per_s":\([0-9.]*\).*/\1/p')
      theirs=$(python3 scripts/bench/pytorch_peer.py --batches "$work/batches" --device cuda \
        --dtype $dtype 2>>"$work/log" | sed -n 's/.*"target_tokens_per_s": *\([0-9.]*\).*/\1/p')
      note "base in $dtype, ${size% *} × ${size#* }" 0 "${ours:-?} tokens/s, PyTorch ${theirs:-?}"
    done
  done
fi
[ "$device" != cuda ] || "$taper" bench kernels --device cuda

printf '\n%-34s %-7s %s\n' "on $device, $SECONDS s" "" ""
printf '%s\n' "${table[@]}"
[ "$failed" -eq 0 ] || { printf '\nthe last that was said:\n'; tail -n 15 "$work/log"; }
exit "$failed"
