// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// previousArgument selects the previous namespace.
	previousArgument = "-"
	// existenceTimeout limits the check whether a namespace exists.
	existenceTimeout = 5 * time.Second
)

type useOptions struct {
	*session
}

func newUseCommand(session *session) *cobra.Command {
	options := &useOptions{session: session}
	return &cobra.Command{
		Use:               "use [NAME | -]",
		Short:             shortUse,
		Long:              longUse,
		Example:           exampleUse,
		Args:              atMostOneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
}

func (o *useOptions) run(ctx context.Context, args []string) error {
	loader := o.flags.ToRawKubeConfigLoader()
	config, err := loader.RawConfig()
	if err != nil {
		return fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	name, current, err := o.findContext(&config)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		fmt.Fprintln(o.Out, namespaceOf(current))
		return nil
	}
	return o.set(ctx, loader.ConfigAccess(), &config, name, args[0])
}

// findContext returns the context to show or change.
func (o *useOptions) findContext(config *clientcmdapi.Config) (string, *clientcmdapi.Context, error) {
	name := config.CurrentContext
	if *o.flags.Context != "" {
		name = *o.flags.Context
	}
	if name == "" {
		return "", nil, errNoCurrentContext
	}
	found := config.Contexts[name]
	if found == nil {
		return "", nil, errNoContext(name)
	}
	return name, found, nil
}

func (o *useOptions) set(
	ctx context.Context, access clientcmd.ConfigAccess, config *clientcmdapi.Config, contextName, wanted string,
) error {
	changed := config.Contexts[contextName]
	history := newNamespaceHistory(changed.LocationOfOrigin, contextName)
	if wanted == previousArgument {
		previous, err := history.read()
		if err != nil {
			return err
		}
		wanted = previous
	}
	if problems := validation.IsDNS1123Label(wanted); len(problems) > 0 {
		return errInvalidName(wanted, problems)
	}
	if before := namespaceOf(changed); before != wanted {
		changed.Namespace = wanted
		if err := clientcmd.ModifyConfig(access, *config, true); err != nil {
			return fmt.Errorf("failed to change context %q of the kubeconfig: %w", contextName, err)
		}
		if err := history.write(before); err != nil {
			o.warnf("%s", msgHistoryNotSaved(err))
		}
	}
	fmt.Fprintln(o.Out, msgNamespaceSet(contextName, wanted))
	o.warnIfUnusable(ctx, wanted)
	return nil
}

// warnIfUnusable prints a warning if a namespace does not exist or is being deleted.
func (o *useOptions) warnIfUnusable(ctx context.Context, name string) {
	client, err := o.namespaces()
	if err != nil {
		o.warnf("%s", msgExistenceUnknown(name, err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, existenceTimeout)
	defer cancel()
	namespace, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		o.warnf("%s", msgDoesNotExist(name))
	case err != nil:
		o.warnf("%s", msgExistenceUnknown(name, err))
	case namespace.DeletionTimestamp != nil:
		o.warnf("%s", msgTerminating(name))
	}
}

func namespaceOf(used *clientcmdapi.Context) string {
	return cmp.Or(used.Namespace, metav1.NamespaceDefault)
}
