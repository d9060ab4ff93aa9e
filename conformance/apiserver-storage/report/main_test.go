package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const passes = `{"Action":"run","Package":"p/good","Test":"TestA"}
{"Action":"output","Package":"p/good","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p/good","Test":"TestA/one"}
{"Action":"skip","Package":"p/good","Test":"TestA/two"}
{"Action":"pass","Package":"p/good","Test":"TestA","Elapsed":1}
{"Action":"skip","Package":"p/good","Test":"TestB"}
{"Action":"pass","Package":"p/good","Elapsed":2.5}
{"Action":"skip","Package":"p/empty"}
`

func TestPassesAreCountedInSilence(t *testing.T) {
	said := reported(t, passes, true)
	for _, wanted := range []string{
		"p/good: 2 tests with 2 subtests in 2 s\n",
		"\ntest result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 2.50s\n",
	} {
		if !strings.Contains(said, wanted) {
			t.Errorf("%q is not in\n%s", wanted, said)
		}
	}
	for _, unwanted := range []string{"chatter", "p/empty"} {
		if strings.Contains(said, unwanted) {
			t.Errorf("%q is in\n%s", unwanted, said)
		}
	}
}

func TestFailuresComeWithWhatTheySaid(t *testing.T) {
	said := reported(t, passes+`{"Action":"output","Package":"p/bad","Test":"TestA","Output":"chatter\n"}
{"Action":"output","Package":"p/bad","Test":"TestC/deep","Output":"the reason\n"}
{"Action":"fail","Package":"p/bad","Test":"TestC/deep"}
{"Action":"fail","Package":"p/bad","Test":"TestC"}
{"Action":"pass","Package":"p/bad","Test":"TestA"}
{"Action":"fail","Package":"p/bad","Elapsed":1}
`, false)
	for _, wanted := range []string{
		"--- p/bad TestC/deep\nthe reason\n",
		"\ntest result: FAILED. 1 passed; 1 failed; 0 ignored;",
	} {
		if !strings.Contains(said, wanted) {
			t.Errorf("%q is not in\n%s", wanted, said)
		}
	}
	if strings.Contains(said, "chatter") {
		t.Errorf("the output of a passing test is printed:\n%s", said)
	}
}

func TestTestsThatWereUnderWayAtATimeoutFail(t *testing.T) {
	said := reported(t, `{"Action":"output","Package":"p/slow","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p/slow","Test":"TestA"}
{"Action":"output","Package":"p/slow","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p/slow","Test":"TestB","Output":"panic: test timed out after 5m\n"}
{"Action":"output","Package":"p/slow","Output":"FAIL p/slow 300s\n"}
{"Action":"fail","Package":"p/slow"}
`, false)
	for _, wanted := range []string{
		"--- p/slow TestB\n=== RUN   TestB\npanic: test timed out",
		"\ntest result: FAILED. 1 passed; 1 failed;",
	} {
		if !strings.Contains(said, wanted) {
			t.Errorf("%q is not in\n%s", wanted, said)
		}
	}
}

func TestWhatCannotBeBuiltFails(t *testing.T) {
	said := reported(t, passes+`{"ImportPath":"p/broken","Action":"build-output","Output":"no such thing\n"}
{"ImportPath":"p/broken","Action":"build-fail"}
{"Action":"output","Package":"p/broken","Output":"FAIL p/broken [build failed]\n"}
{"Action":"fail","Package":"p/broken","FailedBuild":"p/broken"}
`, false)
	for _, wanted := range []string{"no such thing\n", "[build failed]\n", "\ntest result: FAILED. 0 passed; 1 failed;"} {
		if !strings.Contains(said, wanted) {
			t.Errorf("%q is not in\n%s", wanted, said)
		}
	}
}

func TestATestThatPassesWhenItIsRepeatedIsFlaky(t *testing.T) {
	failures := strings.Replace(passes, `{"Action":"pass","Package":"p/good","Elapsed":2.5}`,
		`{"Action":"fail","Package":"p/good","Test":"TestC/deep"}
{"Action":"fail","Package":"p/good","Test":"TestC"}
{"Action":"fail","Package":"p/good","Test":"TestD"}
{"Action":"fail","Package":"p/good","Elapsed":2.5}`, 1)
	for _, example := range []struct {
		second string // events of TestD when repeated
		ok     bool
		result string
	}{
		{`{"Action":"pass","Package":"p/good","Test":"TestD"}
{"Action":"pass","Package":"p/good"}`, true, "ok. 3 passed; 0 failed; 1 ignored;"},
		{`{"Action":"fail","Package":"p/good","Test":"TestD"}
{"Action":"fail","Package":"p/good"}`, false, "FAILED. 2 passed; 1 failed; 1 ignored;"},
		{`{"Action":"pass","Package":"p/good"}`, false, "FAILED. 1 passed; 2 failed; 1 ignored;"},
	} {
		var said strings.Builder
		ok, outcomes, err := report(strings.NewReader(failures), &said, func(name string, tests []string) []byte {
			if name != "p/good" || !slices.Equal(tests, []string{"TestC", "TestD"}) {
				t.Errorf("%s %v were repeated", name, tests)
			}
			return []byte(`{"Action":"pass","Package":"p/good","Test":"TestC"}` + "\n" + example.second + "\n")
		})
		if err != nil || ok != example.ok || !strings.Contains(said.String(), "\ntest result: "+example.result) {
			t.Errorf("%s: %v, %v; want %q in\n%s", example.second, ok, err, example.result, said.String())
		}
		file := filepath.Join(t.TempDir(), "report")
		if err := appendTo(file, outcomes); err != nil {
			t.Fatal(err)
		}
		lines, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(lines), "failed: ") == example.ok {
			t.Errorf("%s: reported %q, %v", example.second, lines, err)
		}
	}
}

func TestNothingIsNoSuccess(t *testing.T) {
	reported(t, "", false)
}

func reported(t *testing.T, events string, wantOK bool) string {
	t.Helper()
	var said strings.Builder
	ok, _, err := report(strings.NewReader(events), &said, nil)
	if err != nil || ok != wantOK {
		t.Errorf("report() = %v, %v; want %v", ok, err, wantOK)
	}
	return said.String()
}
