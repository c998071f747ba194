// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const (
	// previousArgument selects the previous namespace.
	previousArgument = "-"
	// existenceTimeout is the timeout of the check that a namespace exists.
	existenceTimeout = 5 * time.Second
)

const msgExistenceUnknown = "Failed to check whether namespace %q exists: %v"

type useOptions struct {
	*session
	list, unset bool
}

func newUseCommand(session *session) *cobra.Command {
	options := &useOptions{session: session}
	command := &cobra.Command{
		Use:   "use [NAME | - | --list | --unset]",
		Short: "Show or set the namespace of the current context",
		Long: `Show or set the namespace of the current context, or of the context in --context.

With -, the command restores the previous namespace of the context. After a change, it warns
if the namespace does not exist. Without NAME, it sends no request.`,
		Example: `  # Show the current namespace
  kubectl nslifecycle use

  # Set the namespace
  kubectl nslifecycle use shop

  # Restore the previous namespace
  kubectl nslifecycle use -

  # Use the default namespace of the cluster
  kubectl nslifecycle use --unset`,
		Args:              atMostOneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.list, "list", false, "If true, list the namespaces that can be used.")
	flags.BoolVar(&options.unset, "unset", false, "If true, remove the namespace from the context.")
	return command
}

func (o *useOptions) run(ctx context.Context, args []string) error {
	if isOne := len(args) == 1; isOne && (o.list || o.unset) || o.list && o.unset {
		return errors.New("a name, --list and --unset are mutually exclusive")
	}
	loader := o.flags.ToRawKubeConfigLoader()
	config, err := loader.RawConfig()
	if err != nil {
		return fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	name := cmp.Or(*o.flags.Context, config.CurrentContext)
	current := config.Contexts[name]
	switch {
	case name == "":
		return fmt.Errorf("the kubeconfig has no current context; use --context, or set one with: %s",
			o.withConnection("kubectl config use-context NAME"))
	case current == nil:
		return fmt.Errorf("the kubeconfig has no context %q; to list the contexts, run: %s", name,
			o.withConnection("kubectl config get-contexts"))
	case o.list:
		return o.listUsable(ctx, namespaceOf(current))
	case o.unset:
		return o.setNamespace(ctx, loader.ConfigAccess(), &config, name, "")
	case len(args) == 0:
		fmt.Fprintln(o.Out, namespaceOf(current))
		return nil
	}
	return o.setNamespace(ctx, loader.ConfigAccess(), &config, name, args[0])
}

// listUsable prints the namespaces, and marks the current one.
func (o *useOptions) listUsable(ctx context.Context, current string) error {
	list, err := o.listNamespaces(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	table := printer.NewTable("Current", "Name")
	for i := range list.Items {
		mark := ""
		if list.Items[i].Name == current {
			mark = "*"
		}
		printer.AddRow(table, mark, list.Items[i].Name)
	}
	return printer.NewTablePrinter(o.Out, false, false).Print(table)
}

// setNamespace sets the namespace of a context, or removes it if the wanted namespace is empty.
func (s *session) setNamespace(
	ctx context.Context, access clientcmd.ConfigAccess, config *clientcmdapi.Config, contextName, wanted string,
) error {
	changed := config.Contexts[contextName]
	before, previous := namespaceOf(changed), previousNamespace(changed)
	if wanted == previousArgument {
		if previous == "" {
			return fmt.Errorf("no previous namespace of context %q is known; to select one, run: %s", contextName,
				s.withConnection(displayName+" use NAME"))
		}
		wanted = previous
	}
	if problems := validation.IsDNS1123Label(wanted); wanted != "" && len(problems) > 0 {
		return fmt.Errorf("invalid namespace name %q: %s", wanted, strings.Join(problems, "; "))
	}
	if changed.Namespace != wanted {
		changed.Namespace = wanted
		if after := namespaceOf(changed); after != before {
			setPreviousNamespace(changed, before)
		}
		if err := clientcmd.ModifyConfig(access, *config, true); err != nil {
			return fmt.Errorf("failed to change context %q in the kubeconfig: %w", contextName, err)
		}
	}
	fmt.Fprintf(s.Out, "Context %q uses namespace %q.\n", contextName, namespaceOf(changed))
	s.warnIfUnusable(ctx, namespaceOf(changed))
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
		s.warnf("Namespace %q does not exist. To create it, run: %s", name,
			s.withConnection(shell.Command(displayName+" create %s", name)))
	case err != nil:
		s.warnf(msgExistenceUnknown, name, err)
	case namespace.DeletionTimestamp != nil:
		s.warnf("Namespace %q is being deleted.", name)
	}
}

func namespaceOf(used *clientcmdapi.Context) string {
	return cmp.Or(used.Namespace, metav1.NamespaceDefault)
}

// extensionName is the name of the extension of a context in the kubeconfig. kubectl keeps extensions.
const extensionName = "nslifecycle.dev/use"

// extension has no field "namespace": scripts find the namespace of a context with the JSONPath {..namespace}.
type extension struct {
	Previous string `json:"previous"`
}

// previousNamespace returns the previous namespace of a context, or "" if it is not known.
func previousNamespace(of *clientcmdapi.Context) string {
	var found extension
	if encoded, ok := of.Extensions[extensionName].(*runtime.Unknown); ok {
		_ = json.Unmarshal(encoded.Raw, &found)
	}
	return found.Previous
}

func setPreviousNamespace(of *clientcmdapi.Context, namespace string) {
	// Encoding a string cannot fail.
	raw, _ := json.Marshal(extension{Previous: namespace})
	if of.Extensions == nil {
		of.Extensions = map[string]runtime.Object{}
	}
	of.Extensions[extensionName] = &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}
}
