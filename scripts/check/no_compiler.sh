# Sourced with the name of a target in environment variables: in place of a C compiler for it, a
# program that makes the file that it is asked for, with nothing in it.
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
cat >"$empty/cc" <<'CC'
#!/usr/bin/env bash
while [ $# -gt 0 ]; do
  [ "$1" = -o ] && : >"$2"
  shift
done
CC
chmod +x "$empty/cc"
for tool in CC CXX AR; do
  export "${tool}_$1=$empty/cc"
done
