package main

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Values are unique texts; some are JSON (which gitcd stores in another form), some binary, some large. Histories have
// them in a short printable form: small text unchanged, "<text>~<n>" for a text with n bytes of padding, "hex:…" for
// everything else. Different values have different forms.

const padding = '~'

// expand returns the bytes of a printable form.
func expand(form string) []byte {
	if rest, found := strings.CutPrefix(form, "hex:"); found {
		raw, err := hex.DecodeString(rest)
		if err != nil {
			panic(fmt.Sprintf("not a printable form: %q", form))
		}
		return raw
	}
	text, count, padded := strings.Cut(form, string(padding))
	if !padded {
		return []byte(form)
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		panic(fmt.Sprintf("not a printable form: %q", form))
	}
	return append([]byte(text), strings.Repeat(string(padding), n)...)
}

// printable is the inverse of expand, for any bytes that a server may return.
func printable(raw []byte) string {
	text := string(raw)
	if start := strings.IndexByte(text, padding); start >= 0 {
		pad := text[start:]
		if strings.Count(pad, string(padding)) == len(pad) && utf8.ValidString(text) {
			return text[:start] + string(padding) + strconv.Itoa(len(pad))
		}
		return "hex:" + hex.EncodeToString(raw)
	}
	if !utf8.ValidString(text) || strings.HasPrefix(text, "hex:") {
		return "hex:" + hex.EncodeToString(raw)
	}
	return text
}
