#!/usr/bin/env bash
# Words that are nearly always the sign of a sentence that reads as translated: in docs, comments, strings and manifests.
# Usage: hack/words.sh [PATH…]. Prints each line that has one, and fails if there is any.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# Whole words, in any case. Each stands for a noun or a verb that the field has: see docs/glossary.md and CONTRIBUTING.md.
signs='whoever|somebody|nobody|everybody|who may|tell|tells|told|telling'
signs+='|goes? with|of before|so far as|what there is|own affair|waited for|in for'
signs+='|figures|amounts|upkeep|thr(own|ew|ows?) away|come to rest|lets? (in|go)|complaints?|strange|sick'

# FILE:REASON a line; the file, or all files whose path starts so, may use these words.
allowed=$(sed -n 's/^\([^#:][^:]*\):.*/:(exclude)\1/p' hack/words.allow)

mapfile -t paths <<<"$allowed"
((${#@})) || set -- .
found=$(git grep -nIwiE "$signs" -- "$@" ':(exclude)*.lock' ':(exclude)hack/words.*' "${paths[@]}")
[ -z "$found" ] || { printf '%s\n' "$found"; printf '\n%d lines with words that are not the field'"'"'s\n' "$(wc -l <<<"$found")" >&2; exit 1; }
