// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// previousArgument means the namespace that was used before.
	previousArgument = "-"
	// checkTimeout is how long `use` looks whether a namespace exists. The context has been
	// changed by then.
	checkTimeout = 5 * time.Second
)

type useOptions struct {
	*session
}

func newUseCommand(session *session) *cobra.Command {
	options := &useOptions{session: session}
	return &cobra.Command{
		Use:   "use [NAME | -]",
		Short: "Show or set the namespace that kubectl uses",
		Long: "Show or set the namespace of the kubeconfig's current context, or of the one that --context\n" +
			"names. With - it goes back to the namespace that was used before in that context.\n\n" +
			"Showing contacts no server. After setting, the server is asked whether the namespace exists.",
		Example: "  kubectl nslifecycle use\n" +
			"  kubectl nslifecycle use shop\n" +
			"  kubectl nslifecycle use -",
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
		return fmt.Errorf("reading the kubeconfig: %w", err)
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

// findContext returns the context that is to be shown or changed.
func (o *useOptions) findContext(config *clientcmdapi.Config) (string, *clientcmdapi.Context, error) {
	name := config.CurrentContext
	if *o.flags.Context != "" {
		name = *o.flags.Context
	}
	if name == "" {
		return "", nil, errors.New("the kubeconfig has no current context; choose one with --context, " +
			"or for good with `kubectl config use-context`")
	}
	found := config.Contexts[name]
	if found == nil {
		return "", nil, fmt.Errorf("the kubeconfig has no context %q; `kubectl config get-contexts` lists them", name)
	}
	return name, found, nil
}

func (o *useOptions) set(
	ctx context.Context, access clientcmd.ConfigAccess, config *clientcmdapi.Config, contextName, wanted string,
) error {
	changed := config.Contexts[contextName]
	history := newHistory(changed.LocationOfOrigin, contextName)
	if wanted == previousArgument {
		previous, err := history.read()
		if err != nil {
			return err
		}
		wanted = previous
	}
	if problems := validation.IsDNS1123Label(wanted); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a namespace: %s", wanted, strings.Join(problems, "; "))
	}
	if before := namespaceOf(changed); before != wanted {
		changed.Namespace = wanted
		if err := clientcmd.ModifyConfig(access, *config, true); err != nil {
			return fmt.Errorf("changing context %q of the kubeconfig: %w", contextName, err)
		}
		if err := history.write(before); err != nil {
			o.warnf("`%s use -` will not know the way back: %v", displayName, err)
		}
	}
	fmt.Fprintf(o.Out, "Context %q uses namespace %q.\n", contextName, wanted)
	o.check(ctx, wanted)
	return nil
}

// check warns of a namespace that does not exist, or is not there for long.
func (o *useOptions) check(ctx context.Context, name string) {
	client, err := o.namespaces()
	if err != nil {
		o.warnf("Whether namespace %q exists could not be checked: %v", name, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	namespace, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		o.warnf("There is no namespace %q yet; `%s create %s` makes it.", name, displayName, name)
	case err != nil:
		o.warnf("Whether namespace %q exists could not be checked: %v", name, err)
	case namespace.DeletionTimestamp != nil:
		o.warnf("Namespace %q is being deleted.", name)
	}
}

func namespaceOf(used *clientcmdapi.Context) string {
	return cmp.Or(used.Namespace, metav1.NamespaceDefault)
}
