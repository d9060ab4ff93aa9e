package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

const output = "\x16=== RUN   TestA\n\x16=== RUN   TestA/x\n    \x16--- PASS: TestA/x (0.00s)\n" +
	"\x16=== RUN   TestA/y\n--- FAIL: TestA/y (printed by the test itself)\n    \x16--- FAIL: TestA/y (0.00s)\n" +
	"\x16=== RUN   TestA/z\npanic: out of range\n"

func TestOutcomesAreOfTestsWithoutSubtestsAndAPanicFailsTheOneThatRan(t *testing.T) {
	got := map[string]result{}
	for _, o := range outcomes("TestA", output, errors.New("exit status 2")) {
		got[o.test] = o.result
	}
	want := map[string]result{"TestA/x": passed, "TestA/y": failed, "TestA/z": failed}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAProcessThatFailsAfterItsTestsPassedIsAFailure(t *testing.T) {
	all := outcomes("TestA", "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\nleaked\n", errors.New("exit status 1"))
	if len(all) != 2 || all[0].result != passed || all[1].result != failed {
		t.Errorf("got %+v", all)
	}
}

func TestATestThatPassesWhenItIsRepeatedIsFlaky(t *testing.T) {
	known := list{{test: "TestA/x", heading: "users", expected: failed}}
	first := []outcome{
		{test: "TestA/x", result: failed}, {test: "TestA/y", result: failed},
		{test: "TestB (its process)", result: failed}, {test: "TestC", result: passed},
	}
	for _, example := range []struct {
		y     result // when it is repeated
		flaky []string
		wrong []string
	}{
		{passed, []string{"TestA/y", "TestB (its process)"}, nil},
		{failed, []string{"TestB (its process)"}, []string{"TestA/y failed"}},
	} {
		outcomes, flaky := known.repeat(first, func(test string) []outcome {
			switch test {
			case "TestA":
				return []outcome{{test: "TestA/x", result: failed}, {test: "TestA/y", result: example.y}}
			case "TestB":
				return []outcome{{test: "TestB", result: passed}}
			}
			t.Errorf("%s is repeated", test)
			return nil
		})
		verdict := judge(known, outcomes, true)
		if !reflect.DeepEqual(flaky, example.flaky) || !reflect.DeepEqual(verdict.wrong, example.wrong) {
			t.Errorf("%s: got %q, %q; want %q, %q", example.y, flaky, verdict.wrong, example.flaky, example.wrong)
		}
	}
}

func TestTheListIsExact(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	text := "# comment\n[members] why\nTestA\n[users] why\nTestA/x\nTestGone\nother TestB\n[skipped] why\nTestC\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, example := range []struct {
		program  string
		outcomes []outcome
		wrong    []string
	}{
		{"gitcd", []outcome{
			{test: "TestA/x", result: failed}, {test: "TestA/y", result: failed},
			{test: "TestB", result: passed}, {test: "TestC", result: skipped},
		}, []string{"TestGone is listed, but there is no such test"}},
		{"gitcd", []outcome{
			{test: "TestA/x", result: passed}, {test: "TestA/y", result: failed},
			{test: "TestB", result: failed}, {test: "TestC", result: skipped}, {test: "TestGone", result: failed},
		}, []string{"TestA/x is listed below [users], but it passed", "TestB failed"}},
		{"etcd", []outcome{
			{test: "TestA/x", result: failed}, {test: "TestB", result: passed}, {test: "TestC", result: passed},
		}, []string{"TestC is listed below [skipped], but it passed"}},
	} {
		known, err := readList(file, example.program)
		if err != nil {
			t.Fatal(err)
		}
		if got := judge(known.of("own"), example.outcomes, true); !reflect.DeepEqual(got.wrong, example.wrong) {
			t.Errorf("%s %v: got %q, want %q", example.program, example.outcomes, got.wrong, example.wrong)
		}
	}
}
