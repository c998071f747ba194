// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// The delays after which a kubelet restarts a container that exits.
const (
	firstRestartDelay = 10 * time.Second
	maxRestartDelay   = 5 * time.Minute
)

// service is a controller that is restarted when it exits, as by a kubelet.
type service struct {
	start  func(context.Context) (*harness.Process, error)
	cancel context.CancelFunc
	done   chan struct{}

	lock      sync.Mutex
	processes []*harness.Process
	err       error
}

func startService(ctx context.Context, start func(context.Context) (*harness.Process, error)) (*service, error) {
	ctx, cancel := context.WithCancel(ctx)
	first, err := start(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &service{start: start, cancel: cancel, done: make(chan struct{}), processes: []*harness.Process{first}}
	go s.restart(ctx, first)
	return s, nil
}

// restart restarts the process at once when it exits for the first time, and then with increasing
// delays.
func (s *service) restart(ctx context.Context, process *harness.Process) {
	defer close(s.done)
	delay := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-process.Exited():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay = min(max(2*delay, firstRestartDelay), maxRestartDelay)
		next, err := s.start(ctx)
		s.lock.Lock()
		if err != nil {
			s.err = err
			s.lock.Unlock()
			return
		}
		s.processes = append(s.processes, next)
		s.lock.Unlock()
		process = next
	}
}

// stop stops the process. Errors of processes that have exited before are ignored.
func (s *service) stop() error {
	s.cancel()
	<-s.done
	s.lock.Lock()
	defer s.lock.Unlock()
	last := s.processes[len(s.processes)-1]
	select {
	case <-last.Exited():
		return s.err
	default:
		return errors.Join(s.err, last.Stop())
	}
}

// kill kills the process, which is then restarted.
func (s *service) kill() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.processes[len(s.processes)-1].Kill()
}

// lastOutput returns the end of the log of the last process.
func (s *service) lastOutput() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.processes[len(s.processes)-1].LastOutput()
}

// usage is what the processes of a contender have used so far.
type usage struct {
	cpu      time.Duration
	memory   int64
	restarts int
}

func (s *service) usage() (usage, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	result := usage{restarts: len(s.processes) - 1}
	for _, process := range s.processes {
		cpu, _, cpuErr := process.CPU()
		memory, _, memoryErr := process.PeakMemory()
		if err := errors.Join(cpuErr, memoryErr); err != nil {
			return usage{}, err
		}
		result.cpu += cpu
		result.memory = max(result.memory, memory)
	}
	return result, s.err
}
