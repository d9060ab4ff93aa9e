#!/usr/bin/env bash
# Builds the book of docs/ with mdBook, which it installs if it is missing, into target/book.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly BOOK=0.5.4 MERMAID=0.17.1
tools="${XDG_CACHE_HOME:-$HOME/.cache}/trishanku/mdbook-$BOOK-$MERMAID"
if [ ! -x "$tools/bin/mdbook-mermaid" ]; then
  echo "installing mdbook $BOOK and mdbook-mermaid $MERMAID (once, some minutes)" >&2
  cargo install --locked --quiet --root "$tools" "mdbook@$BOOK" "mdbook-mermaid@$MERMAID"
fi
export PATH="$tools/bin:$PATH"
mkdir -p target/book-assets
# The scripts that draw the diagrams are a part of mdbook-mermaid.
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
printf '[book]\ntitle = "x"\n' >"$scratch/book.toml"
mdbook-mermaid install "$scratch" >/dev/null 2>&1
cp "$scratch"/mermaid*.js target/book-assets/
mdbook build "$@"
echo "target/book/index.html"
