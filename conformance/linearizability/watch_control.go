package main

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// control sends what a stream's client has to say after the creations, until the stream ends. It gives the reason why
// the legs that are still open end.
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
		// etcd cancels what was compacted, but answers no request for progress on the stream until its client does, too.
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
			return endCancelled // refused, all of them
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

// finish ends a stream when all of its watchers have what there is, or there is no hope for it. Those that were
// cancelled or refused need another one.
func (s *rawStream) finish(current []*live, final int64, late bool) string {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.finished = true
	for _, l := range current {
		switch {
		case l.leg.Start > final:
			// It blocks the progress of the others until it is off the stream; nothing is for it.
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

// wantsProgress: by hand from time to time, and in the end for everyone, but never while a creation is under way.
func (s *rawStream) wantsProgress(current []*live) bool {
	_, closing := s.closing()
	return (closing || s.style.manual) && s.all(current, func(l *live) bool { return l.created || l.leg.End != "" })
}

// cancel takes watchers off the stream.
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

// again resumes on the same stream what was cancelled or refused.
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
