package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// A rawStream is a sequence of gRPC streams, with some watchers on each. It sees every response as it arrives: fragments,
// several watchers on a stream, answers to a cancellation. It can be slow, so that the server has to buffer its events.
type rawStream struct {
	*Watches
	style rawStyle
	// rng is used by the goroutine that sends, slowness by the one that receives.
	rng, slowness *rand.Rand

	lock   sync.Mutex
	live   map[int64]*live
	nextID int64
	// finished means that all watchers have received everything, or have timed out.
	finished bool
}

type rawStyle struct {
	watchers int
	// manual requests progress explicitly. The watchers of the stream then never change: etcd may send the answer to a
	// request after the creation of a watcher that the request did not cover.
	manual    bool
	slow      bool
	reference bool
}

// live is a watcher on the current stream.
type live struct {
	watcher  *Watcher
	leg      *Leg
	id       int64
	created  bool
	canceled bool // requested by us
}

// Raw starts a rawStream with new watchers.
func (w *Watches) Raw(ctx context.Context, style rawStyle, seed uint64) {
	s := &rawStream{Watches: w, style: style, rng: rand.New(rand.NewPCG(seed, 1)), slowness: rand.New(rand.NewPCG(seed, 2))}
	w.running.Go(func() { s.run(ctx) })
}

// Reference starts the watch of all keys from the first revision on; its watcher is complete at the end of the round.
func (w *Watches) Reference(ctx context.Context) *Watcher {
	watcher := &Watcher{Name: "reference", Key: everything[0], End: everything[1]}
	s := &rawStream{Watches: w, style: rawStyle{watchers: 1, reference: true}, rng: rand.New(rand.NewPCG(1, 1))}
	w.running.Go(func() { s.connections(ctx, []*Watcher{watcher}, []int64{1}) })
	return watcher
}

// Again watches all keys once more, from a revision to the last one.
func (w *Watches) Again(ctx context.Context, start int64) *Watcher {
	watcher := &Watcher{Name: "final", Key: everything[0], End: everything[1], Prev: true}
	s := &rawStream{Watches: w, style: rawStyle{watchers: 1}, rng: rand.New(rand.NewPCG(2, 1))}
	w.running.Go(func() { s.connections(ctx, []*Watcher{watcher}, []int64{start}) })
	return watcher
}

func (s *rawStream) run(ctx context.Context) {
	var watchers []*Watcher
	var starts []int64
	for range s.style.watchers {
		watchers = append(watchers, s.spec(s.rng, "raw"))
		starts = append(starts, s.start(s.rng, s.style.watchers == 1))
	}
	s.connections(ctx, watchers, starts)
}

// connections opens one stream after the other, and resumes the watchers on each.
func (s *rawStream) connections(ctx context.Context, watchers []*Watcher, starts []int64) {
	client, err := connect(s.url, grpc.WithInitialWindowSize(65_535), grpc.WithInitialConnWindowSize(65_535))
	if err != nil {
		s.fail(err)
		return
	}
	defer client.Close()
	for !s.finished && ctx.Err() == nil {
		legs, why := s.stream(ctx, pb.NewWatchClient(client.ActiveConnection()), watchers, starts)
		for i, leg := range legs {
			s.end(leg, why)
			starts[i] = resume(leg)
			if _, closing := s.closing(); !closing && !s.style.reference && s.rng.IntN(8) == 0 {
				watchers[i], starts[i] = s.spec(s.rng, "raw"), s.start(s.rng, len(legs) == 1)
			}
		}
	}
}

// stream runs the watchers on one stream, and returns their latest legs and the reason for their end.
func (s *rawStream) stream(ctx context.Context, client pb.WatchClient, watchers []*Watcher, starts []int64) ([]*Leg, string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Watch(ctx, grpc.MaxCallRecvMsgSize(1<<30))
	if err != nil {
		pause(ctx, 20*time.Millisecond)
		return nil, endBroken
	}
	s.live, s.nextID = map[int64]*live{}, 0
	current := make([]*live, len(watchers))
	for i, watcher := range watchers {
		current[i] = s.create(stream, watcher, starts[i])
	}
	var why string
	var controlling sync.WaitGroup
	controlling.Go(func() { why = s.control(ctx, cancel, stream, current) })
	for {
		response, err := stream.Recv()
		if err != nil {
			break
		}
		s.receive(response)
		s.dawdle(ctx)
	}
	cancel()
	controlling.Wait()
	legs := make([]*Leg, len(current))
	for i, l := range current {
		legs[i] = l.leg
	}
	return legs, why
}

// create adds a watcher to the stream. A failed send shows up as an error when receiving.
func (s *rawStream) create(stream pb.Watch_WatchClient, watcher *Watcher, start int64) *live {
	s.lock.Lock()
	s.nextID++
	id := s.nextID
	l := &live{watcher: watcher, leg: s.begin(watcher, start), id: id}
	s.live[id] = l
	s.lock.Unlock()
	request := &pb.WatchCreateRequest{
		Key: []byte(watcher.Key), RangeEnd: []byte(watcher.End), StartRevision: start, WatchId: id,
		PrevKv: watcher.Prev, ProgressNotify: watcher.Progress, Fragment: watcher.Fragment,
	}
	if watcher.NoPut {
		request.Filters = append(request.Filters, pb.WatchCreateRequest_NOPUT)
	}
	if watcher.NoDelete {
		request.Filters = append(request.Filters, pb.WatchCreateRequest_NODELETE)
	}
	_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}})
	return l
}

func (s *rawStream) receive(response *pb.WatchResponse) {
	answer := watchAnswerOf(s.recorder.Now(), response)
	s.lock.Lock()
	defer s.lock.Unlock()
	for id, l := range s.live {
		if id != response.WatchId && !(response.WatchId == -1 && l.created) || l.leg.End != "" {
			continue
		}
		l.leg.Answers = append(l.leg.Answers, answer)
		l.created = l.created || answer.Created
		switch {
		case answer.Compact != 0:
			s.end(l.leg, endRefused)
		case answer.Canceled && l.canceled:
			s.end(l.leg, endCancelled)
		case answer.Canceled:
			s.end(l.leg, endBroken)
		}
		if n := len(answer.Events); s.style.reference && n > 0 {
			raise(&s.world.reference, answer.Events[n-1].Mod)
			raise(&s.world.revision, answer.Events[n-1].Mod)
		}
	}
}

// dawdle delays the next receive if the watcher is a slow one.
func (s *rawStream) dawdle(ctx context.Context) {
	if _, closing := s.closing(); closing || !s.style.slow {
		return
	}
	switch n := s.slowness.IntN(100); {
	case n < 2:
		pause(ctx, time.Duration(1000+s.slowness.IntN(2000))*time.Millisecond)
	case n < 30:
		pause(ctx, time.Duration(s.slowness.IntN(200))*time.Millisecond)
	}
}
