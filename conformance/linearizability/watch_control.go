package main

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// control sends all requests after the creations, until the stream ends. It returns the reason for the end of the legs
// that are still open.
func (s *rawStream) control(ctx context.Context, cancel context.CancelFunc, stream pb.Watch_WatchClient, current []*live) string {
	defer cancel()
	nextProgress := time.Now().Add(s.some(300))
	nextCancel := time.Now().Add(500*time.Millisecond + s.some(5000))
	var deadline time.Time
	for {
		select {
		case <-ctx.Done():
			return endBroken
		case <-time.After(20 * time.Millisecond):
		}
		now := time.Now()
		// etcd cancels watches of compacted revisions, but answers no progress request on the stream until the client has
		// cancelled them, too.
		s.cancel(stream, current, func(l *live) bool { return l.leg.End == endRefused })
		if final, closing := s.closing(); closing {
			if deadline.IsZero() {
				deadline, nextProgress = now.Add(reachPatience), now
			}
			s.cancel(stream, current, func(l *live) bool { return l.leg.End == "" && l.leg.Start > final })
			if why := s.finish(current, final, now.After(deadline)); why != "" {
				return why
			}
		}
		if now.After(nextProgress) && s.wantsProgress(current) {
			_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
			nextProgress = now.Add(50*time.Millisecond + s.some(500))
		}
		if _, closing := s.closing(); closing || s.style.reference {
			continue
		}
		if s.all(current, func(l *live) bool { return l.leg.End != "" }) {
			return endCancelled // all were refused or cancelled
		}
		if now.After(nextCancel) {
			nextCancel = now.Add(300*time.Millisecond + s.some(3000))
			if s.style.manual {
				return endCancelled
			}
			chosen := current[s.rng.IntN(len(current))]
			s.cancel(stream, current, func(l *live) bool { return l.leg.End == "" && l == chosen })
		}
		if !s.style.manual {
			s.again(stream, current)
		}
	}
}

// finish returns endRound if all watchers of the stream have received everything or have timed out, or if the remaining
// ones were cancelled or refused and need another stream. Otherwise it returns an empty reason.
func (s *rawStream) finish(current []*live, final int64, late bool) string {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.finished = true
	for _, l := range current {
		switch {
		case l.leg.Start > final:
			// It will get no events, and blocks the progress of the others until it is cancelled.
		case l.leg.End == "" && l.leg.next() <= final:
			if !late {
				s.finished = false
				return ""
			}
			s.giveUp(l.watcher)
		case resume(l.leg) <= final && !late:
			s.finished = false
		}
	}
	return endRound
}

func (s *rawStream) some(milliseconds int) time.Duration {
	return time.Duration(s.rng.IntN(milliseconds)) * time.Millisecond
}

func (s *rawStream) all(current []*live, holds func(*live) bool) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, l := range current {
		if !holds(l) {
			return false
		}
	}
	return true
}

// wantsProgress reports whether to request progress: with a manual style, and always at the end of the round, but never
// before all creations are answered.
func (s *rawStream) wantsProgress(current []*live) bool {
	_, closing := s.closing()
	return (closing || s.style.manual) && s.all(current, func(l *live) bool { return l.created || l.leg.End != "" })
}

// cancel cancels the chosen watchers on the stream.
func (s *rawStream) cancel(stream pb.Watch_WatchClient, current []*live, chosen func(*live) bool) {
	var ids []int64
	s.lock.Lock()
	for _, l := range current {
		if l.created && !l.canceled && chosen(l) {
			l.canceled = true
			ids = append(ids, l.id)
		}
	}
	s.lock.Unlock()
	for _, id := range ids {
		_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
	}
}

// again resumes cancelled and refused watchers on the same stream.
func (s *rawStream) again(stream pb.Watch_WatchClient, current []*live) {
	for i, l := range current {
		s.lock.Lock()
		ended := l.leg.End != ""
		s.lock.Unlock()
		if ended {
			current[i] = s.create(stream, l.watcher, resume(l.leg))
		}
	}
}
