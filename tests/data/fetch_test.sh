#!/usr/bin/env bash
# Tests data/fetch_tinyshakespeare in a folder of its own, without the network.
#   fetch_test.sh refuses TOOL   what must fail, fails: message, status, nothing left behind
#   fetch_test.sh accepts TOOL   the right text; skipped (77) without $CHARGRAD_SHARED
set -euo pipefail

mode=$1
tool=$2
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
mkdir "$work/data" "$work/bin"
cp -- "$tool" "$work/data/fetch_tinyshakespeare"
fetch=$work/data/fetch_tinyshakespeare
target=$work/data/tinyshakespeare.txt
expected=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
# SHA-256 of "abc", the example of FIPS 180-2.
abc=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
printf 'abc' >"$work/abc.txt"

# The tool sees these programs and whatever stand-ins a test adds; no curl, no wget.
for name in bash cat chmod dirname mktemp mv rm sha256sum; do
  ln -s "$(command -v "$name")" "$work/bin/$name"
done

failures=0
wrong() {
  echo "FAILED: $1" >&2
  failures=$((failures + 1))
}

# run STATUS NAME COMMAND...: runs, keeps what was said in $said, compares the status.
run() {
  local want=$1 name=$2 status=0
  shift 2
  said=$("$@" 2>&1) || status=$?
  [[ $status -eq $want ]] || wrong "$name: status $status, expected $want: $said"
}

says() {
  [[ $said == *"$2"* ]] || wrong "$1: expected to read '$2', got '$said'"
}

# The folder holds the tool and `left` (a name or nothing), no temporary file.
holds() {
  local name=$1 left=${2-} found
  found=$(ls -A "$work/data" | grep -vx fetch_tinyshakespeare || true)
  [[ $found == "$left" ]] || wrong "$name: found '$found' in data/, expected '$left'"
}

# A stand-in for curl or wget: writes FILE to where --output or --output-document says, exits STATUS.
stand_in() {
  local name=$1 file=$2 status=$3
  cat >"$work/bin/$name" <<END
#!$work/bin/bash
while [[ \$# -gt 0 ]]; do
  case \$1 in
    --output) cat -- "$file" >"\$2"; shift ;;
    --output-document=*) cat -- "$file" >"\${1#*=}" ;;
  esac
  last=\$1
  shift
done
[[ \$last == https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt ]] || exit 99
exit $status
END
  chmod +x "$work/bin/$name"
}

refuses() {
  run 1 "wrong local file" "$fetch" "$work/abc.txt"
  says "wrong local file" "$work/abc.txt is not tiny-Shakespeare, nothing was changed"
  says "wrong local file" "SHA-256 expected $expected"
  says "wrong local file" "SHA-256 got      $abc"
  holds "wrong local file"

  run 1 "missing file" "$fetch" "$work/none.txt"
  says "missing file" "$work/none.txt is not a file"
  run 1 "folder as file" "$fetch" "$work"
  says "folder as file" "$work is not a file"
  run 2 "two files" "$fetch" a b
  says "two files" "usage: data/fetch_tinyshakespeare [FILE]"
  run 2 "unknown flag" "$fetch" --force
  says "unknown flag" "usage: data/fetch_tinyshakespeare [FILE]"
  holds "bad arguments"

  # A closed local port in the proxy's place: the network is there, the address is not reached.
  if command -v curl >/dev/null || command -v wget >/dev/null; then
    run 1 "unreachable" env https_proxy=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 no_proxy= NO_PROXY= "$fetch"
    says "unreachable" "cannot fetch https://raw.githubusercontent.com/"
    says "unreachable" "$fetch FILE"
    says "unreachable" "or put it at $target"
    says "unreachable" "its SHA-256 is $expected"
    holds "unreachable"
  fi

  run 1 "neither curl nor wget" env PATH="$work/bin" "$fetch"
  says "neither curl nor wget" "needs curl or wget to fetch the text, found neither"
  says "neither curl nor wget" "or put it at $target"
  holds "neither curl nor wget"

  local name
  for name in curl wget; do
    stand_in "$name" "$work/abc.txt" 0
    run 1 "$name, wrong text" env PATH="$work/bin" "$fetch"
    says "$name, wrong text" "input.txt is not tiny-Shakespeare, nothing was changed"
    says "$name, wrong text" "SHA-256 got      $abc"
    holds "$name, wrong text"
    stand_in "$name" "$work/abc.txt" 18
    run 1 "$name, broken off" env PATH="$work/bin" "$fetch"
    says "$name, broken off" "cannot fetch https://raw.githubusercontent.com/"
    holds "$name, broken off"
    rm "$work/bin/$name"
  done

  # What was there before survives a failed try.
  printf 'mine' >"$target"
  run 1 "wrong file over another" "$fetch" "$work/abc.txt"
  says "wrong file over another" "$target has another SHA-256"
  holds "wrong file over another" tinyshakespeare.txt
  [[ $(cat "$target") == mine ]] || wrong "wrong file over another: the target was changed"
  rm "$target"

  mkdir "$target"
  run 1 "folder in the target's place" "$fetch" "$work/abc.txt"
  says "folder in the target's place" "$target is a folder, remove it first"
  rmdir "$target"
}

accepts() {
  local text=${CHARGRAD_SHARED-}/data/tinyshakespeare.txt
  if [[ -z ${CHARGRAD_SHARED-} || ! -f $text ]]; then
    echo "skipped data.fetch.accepts: needs CHARGRAD_SHARED with data/tinyshakespeare.txt"
    exit 77
  fi
  run 0 "local file" "$fetch" "$text"
  says "local file" "$target is there, SHA-256 verified"
  holds "local file" tinyshakespeare.txt
  cmp -s "$text" "$target" || wrong "local file: the copy differs"

  # A second time: no program that could fetch is needed, the file stays the same one.
  local before
  before=$(ls -i "$target")
  run 0 "already there" env PATH="$work/bin" "$fetch"
  says "already there" "$target is already there, and right"
  [[ $(ls -i "$target") == "$before" ]] || wrong "already there: the file was written again"

  # A FILE is still looked at.
  run 1 "another file" "$fetch" "$work/abc.txt"
  says "another file" "$work/abc.txt is not tiny-Shakespeare, which $target already is; nothing was changed"
  run 0 "the same file" "$fetch" "$text"
  says "the same file" "$target is already there, and right"
  [[ $(ls -i "$target") == "$before" ]] || wrong "the same file: the file was written again"

  # A damaged copy is replaced.
  printf 'x' >>"$target"
  run 0 "damaged" "$fetch" "$text"
  says "damaged" "getting it again"
  cmp -s "$text" "$target" || wrong "damaged: the copy differs"

  local name
  for name in curl wget; do
    rm "$target"
    stand_in "$name" "$text" 0
    run 0 "by $name" env PATH="$work/bin" "$fetch"
    says "by $name" "$target is there, SHA-256 verified"
    holds "by $name" tinyshakespeare.txt
    cmp -s "$text" "$target" || wrong "by $name: the text differs"
    rm "$work/bin/$name"
  done
}

case $mode in
  refuses | accepts) "$mode" ;;
  *) wrong "unknown mode $mode" ;;
esac
if [[ $failures -gt 0 ]]; then
  echo "$failures failures" >&2
  exit 1
fi
