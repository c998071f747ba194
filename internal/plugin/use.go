// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const (
	// previousArgument selects the previous namespace.
	previousArgument = "-"
	// existenceTimeout is the timeout of the check that a namespace exists.
	existenceTimeout = 5 * time.Second
)

func newUseCommand(session *session) *cobra.Command {
	return &cobra.Command{
		Use:               "use [NAME | -]",
		Short:             shortUse,
		Long:              longUse,
		Example:           exampleUse,
		Args:              atMostOneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			return session.use(command.Context(), args)
		},
	}
}

func (s *session) use(ctx context.Context, args []string) error {
	loader := s.flags.ToRawKubeConfigLoader()
	config, err := loader.RawConfig()
	if err != nil {
		return fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	name := cmp.Or(*s.flags.Context, config.CurrentContext)
	current := config.Contexts[name]
	switch {
	case name == "":
		return fmt.Errorf(msgNoCurrentContext, s.withConnection("kubectl config use-context NAME"))
	case current == nil:
		return fmt.Errorf(msgNoContext, name, s.withConnection("kubectl config get-contexts"))
	case len(args) == 0:
		fmt.Fprintln(s.Out, namespaceOf(current))
		return nil
	}
	return s.setNamespace(ctx, loader.ConfigAccess(), &config, name, args[0])
}

// setNamespace changes the namespace of a context in the kubeconfig.
func (s *session) setNamespace(
	ctx context.Context, access clientcmd.ConfigAccess, config *clientcmdapi.Config, contextName, wanted string,
) error {
	changed := config.Contexts[contextName]
	history := newNamespaceHistory(changed.LocationOfOrigin, contextName)
	if wanted == previousArgument {
		previous, err := history.read()
		if err != nil {
			return err
		}
		if previous == "" {
			return fmt.Errorf(msgNoPreviousNamespace, contextName, s.withConnection(displayName+" use NAME"))
		}
		wanted = previous
	}
	if problems := validation.IsDNS1123Label(wanted); len(problems) > 0 {
		return fmt.Errorf(msgInvalidName, wanted, strings.Join(problems, "; "))
	}
	if before := namespaceOf(changed); before != wanted {
		changed.Namespace = wanted
		if err := clientcmd.ModifyConfig(access, *config, true); err != nil {
			return fmt.Errorf("failed to change context %q in the kubeconfig: %w", contextName, err)
		}
		if err := history.write(before); err != nil {
			s.warnf(msgHistoryNotSaved, displayName, err)
		}
	}
	fmt.Fprintf(s.Out, msgNamespaceSet, contextName, wanted)
	s.warnIfUnusable(ctx, wanted)
	return nil
}

// warnIfUnusable prints a warning if a namespace does not exist or is being deleted.
func (s *session) warnIfUnusable(ctx context.Context, name string) {
	client, err := s.namespaces()
	if err != nil {
		s.warnf(msgExistenceUnknown, name, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, existenceTimeout)
	defer cancel()
	namespace, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.warnf(msgDoesNotExist, name, s.withConnection(shell.Command(displayName+" create %s", name)))
	case err != nil:
		s.warnf(msgExistenceUnknown, name, err)
	case namespace.DeletionTimestamp != nil:
		s.warnf(msgTerminating, name)
	}
}

func namespaceOf(used *clientcmdapi.Context) string {
	return cmp.Or(used.Namespace, metav1.NamespaceDefault)
}
