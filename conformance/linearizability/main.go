// Linearizability checks an etcd server: it runs random clients, watchers and failures, and then checks every response
// against a model of etcd. See README.md for the checks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// checkPatience is the time limit of the search for an order of all operations of a round.
const checkPatience = 2 * time.Minute

type options struct {
	duration time.Duration
	seed     int64
	rounds   int
	out      string
	keep     bool
	enough   int
	program  Program
}

func main() {
	var o options
	recheck := flag.String("check", "", "check this saved history instead of running rounds")
	flag.DurationVar(&o.duration, "duration", time.Minute, "how long to start new rounds")
	flag.Int64Var(&o.seed, "seed", time.Now().UnixNano()%1_000_000_000, "seed of the first round; each further round adds 1")
	flag.IntVar(&o.rounds, "rounds", 0, "maximum number of rounds; 0 means no limit")
	flag.StringVar(&o.out, "out", "violations", "folder for histories with violations")
	flag.IntVar(&o.enough, "violations", 3, "stop after this many rounds with violations")
	flag.BoolVar(&o.keep, "keep", false, "save the histories of all rounds, not only of those with violations")
	flag.Parse()
	ok, err := false, error(nil)
	if *recheck != "" {
		ok, err = checkAgain(*recheck)
	} else if o.program, err = program(); err == nil {
		ok, err = runRounds(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "linearizability:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// program copies the program that $ETCD or $GITCD names, so that a rebuild does not affect later rounds.
func program() (Program, error) {
	for _, kind := range []string{"etcd", "gitcd"} {
		path := os.Getenv(map[string]string{"etcd": "ETCD", "gitcd": "GITCD"}[kind])
		if path == "" {
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return Program{}, err
		}
		folder, err := os.MkdirTemp("", "linearizability-")
		if err != nil {
			return Program{}, err
		}
		copied := filepath.Join(folder, kind)
		return Program{Kind: kind, Path: copied}, os.WriteFile(copied, raw, 0o755)
	}
	return Program{}, errors.New("set GITCD or ETCD to the program to check")
}

func checkAgain(path string) (bool, error) {
	history, err := load(path)
	if err != nil {
		return false, err
	}
	f := check(history, checkPatience, filepath.Dir(path))
	if len(f.Violations) > 0 {
		tell(os.Stdout, history.Seed, path, f)
	}
	return summarize(os.Stdout, f), nil
}

func runRounds(o options) (bool, error) {
	defer os.RemoveAll(filepath.Dir(o.program.Path))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("checking %s for %v, first seed %d\n", o.program.Kind, o.duration, o.seed)
	counters := &Counters{start: time.Now()}
	done := make(chan struct{})
	defer close(done)
	go counters.show(done)
	all, bad := NewFindings(), 0
	for round := int64(0); bad < o.enough && ctx.Err() == nil; round++ {
		enough := o.rounds > 0 && round >= int64(o.rounds) || time.Since(counters.start) >= o.duration
		if round > 0 && enough {
			break
		}
		seed := o.seed + round
		history, err := RunRound(ctx, o.program, seed, counters)
		if err != nil {
			return false, fmt.Errorf("round with seed %d: %w", seed, err)
		}
		folder := filepath.Join(o.out, fmt.Sprintf("%s-seed-%d", o.program.Kind, seed))
		f := check(history, checkPatience, folder)
		counters.add(f)
		all.add(f)
		if len(f.Violations) > 0 {
			bad++
			tell(os.Stdout, seed, folder, f)
		}
		if len(f.Violations) > 0 || o.keep {
			if err := keep(folder, history, f); err != nil {
				return false, err
			}
		}
	}
	fmt.Println(counters)
	return summarize(os.Stdout, all), ctx.Err()
}
