package main

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestPrintableFormsAreReversible(t *testing.T) {
	seen := map[string]bool{}
	for _, raw := range []string{"", "a", "~", "a~", "a~~~", "a~1", "~a", "hex:", "hex:00", "\x00", "\xff~~", "a\n", `{"a":"~"}`} {
		form := printable([]byte(raw))
		if seen[form] {
			t.Errorf("%q has the same form %q as another value", raw, form)
		}
		seen[form] = true
		if got := expand(form); !bytes.Equal(got, []byte(raw)) {
			t.Errorf("%q became %q and then %q", raw, form, got)
		}
	}
}

func TestGeneratedValuesAreUniqueAndInTheirPrintableForm(t *testing.T) {
	g := &Generator{rng: rand.New(rand.NewPCG(1, 1)), client: 1, large: true}
	seen := map[string]bool{}
	for range 2000 {
		form := g.value()
		if printable(expand(form)) != form {
			t.Errorf("%q is not in its printable form", form)
		}
		if seen[form] {
			t.Errorf("%q was generated twice", form)
		}
		seen[form] = true
	}
}
