// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/util/workqueue"
)

// maxParallelContexts is the maximum number of clusters that are read in parallel.
const maxParallelContexts = 16

// addContextsFlag adds the flag --contexts to a command that can read several clusters.
func (s *session) addContextsFlag(command *cobra.Command, contexts *[]string) {
	command.Flags().StringSliceVar(contexts, "contexts", nil,
		"If set, read the clusters of these contexts of the kubeconfig, and show the context of each namespace.")
	_ = command.RegisterFlagCompletionFunc("contexts", s.completeContexts)
}

// inContexts returns a session for each context, or this session if there are none.
func (s *session) inContexts(contexts []string) ([]*session, error) {
	if len(contexts) == 0 {
		return []*session{s}, nil
	}
	if *s.flags.Context != "" {
		return nil, errors.New("--context and --contexts are mutually exclusive")
	}
	var sessions []*session
	for i, name := range contexts {
		if name == "" || slices.Contains(contexts[:i], name) {
			return nil, fmt.Errorf("invalid --contexts value %q: each context must be given once", name)
		}
		other := newSession(s.IOStreams)
		other.contextName, other.verbosity = name, s.verbosity
		s.flagSet.VisitAll(func(flag *pflag.Flag) {
			if copied := other.flagSet.Lookup(flag.Name); flag.Changed {
				copyFlag(copied, flag)
			}
		})
		if err := other.flagSet.Set("context", name); err != nil {
			return nil, err
		}
		sessions = append(sessions, other)
	}
	return sessions, nil
}

func copyFlag(to, from *pflag.Flag) {
	to.Changed = true
	if list, ok := from.Value.(pflag.SliceValue); ok {
		// The values have been parsed before.
		_ = to.Value.(pflag.SliceValue).Replace(list.GetSlice())
		return
	}
	_ = to.Value.Set(from.Value.String())
}

// forEachContext calls a function for each session in parallel.
func forEachContext(ctx context.Context, sessions []*session, do func(int)) {
	workqueue.ParallelizeUntil(ctx, maxParallelContexts, len(sessions), do)
}

// inContext returns a text with the name of the context, if the user has chosen several.
func (s *session) inContext(text string) string {
	if s.contextName == "" {
		return text
	}
	return fmt.Sprintf("%s (context %q)", text, s.contextName)
}

// contextError returns an error with the name of the context, if the user has chosen several.
func (s *session) contextError(err error) error {
	if err == nil || s.contextName == "" {
		return err
	}
	return fmt.Errorf("context %q: %w", s.contextName, err)
}
