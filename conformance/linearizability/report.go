package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// keep writes a history and the findings to a folder.
func keep(folder string, h *History, f *Findings) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, content := range map[string]any{"history.json": h, "findings.json": f} {
		raw, err := json.MarshalIndent(content, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// load reads a history that keep has written.
func load(path string) (*History, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	history := &History{}
	return history, json.Unmarshal(raw, history)
}

func tell(out io.Writer, seed int64, folder string, f *Findings) {
	fmt.Fprintf(out, "\nVIOLATED with seed %d (history in %s):\n", seed, folder)
	for _, violation := range f.Violations {
		fmt.Fprintf(out, "  %s: %s\n", violation.Claim, violation.Text)
	}
	fmt.Fprintln(out)
}

// summarize prints a line for each claim, and the result in the format of Rust's test runner. A claim that was never
// checked counts as failed.
func summarize(out io.Writer, all *Findings) (ok bool) {
	passed, failed := 0, 0
	fmt.Fprintln(out)
	for _, claim := range claims {
		switch {
		case all.Violates(claim):
			fmt.Fprintf(out, "test %s ... FAILED\n", claim)
			failed++
		case all.Checked[claim] == 0:
			fmt.Fprintf(out, "test %s ... FAILED (never checked)\n", claim)
			failed++
		default:
			fmt.Fprintf(out, "test %s ... ok (%d)\n", claim, all.Checked[claim])
			passed++
		}
	}
	verdict := "ok"
	if failed > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(out, "\ntest result: %s. %d passed; %d failed; 0 ignored; 0 measured; 0 filtered out\n", verdict, passed, failed)
	return failed == 0
}
