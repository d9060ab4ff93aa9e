#!/usr/bin/env bash
# Looks for words that are nearly always the sign of a sentence that reads as translated: in docs, comments, strings and manifests.
# Usage: hack/words.sh [PATH…]. Prints each line that has one, and fails if there is any. Identifiers of code do not count.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# Whole words, in any case. docs/glossary.md has the terms to use instead.
signs='whoever|somebody|nobody|everybody|who may|tell|tells|told|telling'
signs+='|goes? with|of before|so far as|what there is|own affair|waited for|in for'
signs+='|figures|amounts|upkeep|thr(own|ew|ows?) away|come to rest|lets? (in|go)|complaints?|strange|sick'

# One entry a line: PATH: REASON. Files at and below PATH may have these words.
mapfile -t allowed < <(sed -n 's/^\([^#:][^:]*\):.*/:(exclude)\1/p' hack/words.allow)
((${#@})) || set -- .

# Of code, only comments and the contents of strings are read, without `names` and {placeholders}.
found=$(git grep -nIwiE "$signs" -- "$@" ':(exclude)*.lock' ':(exclude)hack/words.*' "${allowed[@]}" | awk -v signs="$signs" '
  {
    file = $0; sub(/:.*/, "", file)
    text = $0; sub(/^[^:]*:[0-9]*:/, "", text)
    if (file ~ /\.(rs|go)$/) {
      code = text; text = ""
      while (match(code, /"([^"\\]|\\.)*"|\/\/.*/)) {
        text = text " " substr(code, RSTART, RLENGTH)
        code = substr(code, RSTART + RLENGTH)
      }
      # A string may go on over several lines; these do not look like fields, arguments or headers of code.
      if (text == "" && code !~ /[;={}(]/ && code !~ /^ *(pub )?[A-Za-z_]+(: [A-Za-z0-9_:<>, &\047]+)?,?$/ && code !~ / for [A-Z]/) text = code
    }
    gsub(/`[^`]*`|\{[^}]*\}/, "", text)
    if (tolower(text) ~ "(^|[^a-z0-9_])(" signs ")([^a-z0-9_]|$)") print
  }')
[ -n "$found" ] || exit 0
printf '%s\n' "$found"
printf '\n%d lines with words that docs/glossary.md has better ones for\n' "$(wc -l <<<"$found")" >&2
exit 1
