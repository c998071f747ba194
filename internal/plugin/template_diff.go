// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
)

// maxExamples is the number of namespaces that are printed for each kind of change.
const maxExamples = 3

type templateDiffOptions struct {
	templateSource
	output *printer.Output
	all    bool
}

func newTemplateDiffCommand(session *session) *cobra.Command {
	options := &templateDiffOptions{
		templateSource: templateSource{session: session}, output: printer.NewOutput(printer.FormatJSON, printer.FormatYAML),
	}
	command := &cobra.Command{
		Use:               "diff (NAME | -f FILE)",
		Short:             shortTemplateDiff,
		Long:              longTemplateDiff,
		Example:           exampleTemplateDiff,
		Args:              options.validate,
		ValidArgsFunction: session.completeTemplate,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	options.addFlag(command)
	options.output.AddFlag(command)
	command.Flags().BoolVarP(&options.all, "all", "A", false, helpDiffAll)
	return command
}

func (o *templateDiffOptions) run(ctx context.Context, args []string) error {
	if err := o.output.Validate(); err != nil {
		return err
	}
	changed, err := o.read(ctx, args)
	if err != nil {
		return err
	}
	current := changed
	if o.filename != "" {
		// The age of the template decides whether it applies to namespaces in which its initializer timed out.
		if current, changed.CreationTimestamp, err = o.current(ctx, changed.Name); err != nil {
			return err
		}
	}
	namespaces, err := o.listNamespaces(ctx, *o.flags.Namespace)
	if err != nil {
		return err
	}
	result := templates.Compare(ctx, changed, current, namespaces)
	examples := result.Examples(o.limit())
	untested, err := o.dryRun(ctx, changed, result, examples)
	if err != nil {
		return err
	}
	if o.output.IsStructured() {
		err = o.output.Print(o.Out, "TemplateComparison", result)
	} else {
		err = printComparison(o.Out, result, examples)
	}
	o.warnEach(msgNotTested, untested)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	if result.Namespaces[templates.Failed] > 0 {
		return &StatusError{Code: ExitError}
	}
	return nil
}

func (o *templateDiffOptions) limit() int {
	if o.all {
		return 0
	}
	return maxExamples
}

// current returns the template of the cluster, or nil if it does not exist or is invalid, and its creation timestamp,
// or the current time if it does not exist.
func (o *templateDiffOptions) current(
	ctx context.Context, name string,
) (current *templates.Template, created metav1.Time, err error) {
	_, object, err := o.template(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, metav1.Now(), nil
	case err != nil:
		return nil, metav1.Time{}, err
	}
	current, err = templates.Compile(object)
	if err != nil {
		o.warnf(msgCurrentInvalid, err)
	}
	return current, object.CreationTimestamp, nil
}

// dryRun adds the results of server-side dry runs to the examples. It returns what was not tested.
func (o *templateDiffOptions) dryRun(
	ctx context.Context, changed *templates.Template, result *templates.Comparison, examples []*templates.NamespaceChange,
) ([]string, error) {
	config, err := o.restConfig()
	if err != nil {
		return nil, err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf(msgClient, err)
	}
	discoverer, _, err := o.contentClients()
	if err != nil {
		return nil, err
	}
	runner := &templates.DryRunner{
		Client: client, Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoverer)),
	}
	var untested []string
	for _, example := range examples {
		untested = append(untested, runner.Run(ctx, changed, result, example)...)
	}
	slices.Sort(untested)
	return slices.Compact(untested), nil
}
