package main

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Values are unique texts, some of them JSON (which gitcd keeps in another form), some not text at all, some large.
// Histories keep them in a short printable form: small text as it is, "<text>~<n>" for a text with n bytes of padding,
// "hex:…" for everything else. The form of two different values differs.

const padding = '~'

// expand gives the bytes of a printable form that clients put.
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

// printable is the reverse of expand; it takes whatever a server answers.
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
