// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

type templateRenderOptions struct {
	templateSource
	namespaceFile string
	parameters    []string
	labels        map[string]string
	requestedBy   string
}

func newTemplateRenderCommand(session *session) *cobra.Command {
	options := &templateRenderOptions{templateSource: templateSource{session: session}}
	command := &cobra.Command{
		Use:   "render (NAME | -f FILE) (--namespace=NAME | --namespace-file=FILE)",
		Short: "Print the objects of a NamespaceTemplate for a namespace",
		Long: `Print the objects of a NamespaceTemplate for a namespace as YAML, in the order in which the
operator applies them, after the labels and annotations that it sets on the namespace. The data of
copies is not printed. If the template does not select the namespace, the command prints a warning.

With a file, the command needs no cluster: the namespace is a new one with the name in
--namespace, or the one in --namespace-file. With NAME, the template and the namespace are
those in the cluster; the namespace does not need to exist.`,
		Example: `  # Render a template in a file for a new namespace
  kubectl nslifecycle template render -f team.yaml --namespace=shop -p size=l \
    --requested-by=alice

  # Render a template in a file for a namespace in the cluster
  kubectl get namespace shop -o yaml |
    kubectl nslifecycle template render -f team.yaml --namespace-file=-`,
		Args:              options.validate,
		ValidArgsFunction: session.completeTemplate,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	options.addFlag(command)
	flags := command.Flags()
	flags.StringVar(&options.namespaceFile, "namespace-file", "", "File with a Namespace, or - for stdin.")
	flags.StringArrayVarP(&options.parameters, "parameter", "p", nil,
		"Set a parameter, as NAME=VALUE. The flag can be repeated.")
	flags.StringToStringVarP(&options.labels, "labels", "l", nil,
		"Add labels to the namespace, for example key1=value1,key2=value2.")
	flags.StringVar(&options.requestedBy, "requested-by", "", "Set the name of the user who creates the namespace.")
	return command
}

func (o *templateRenderOptions) run(ctx context.Context, args []string) error {
	values, err := templates.ParseParameters(o.parameters)
	if err != nil {
		return err
	}
	switch hasFile, hasName := o.namespaceFile != "", *o.flags.Namespace != ""; {
	case hasFile && hasName:
		return errors.New("--namespace and --namespace-file are mutually exclusive")
	case !hasFile && !hasName:
		return errors.New("--namespace or --namespace-file is required")
	}
	template, err := o.read(ctx, args)
	if err != nil {
		return err
	}
	namespace, err := o.namespace(ctx, template)
	if err != nil {
		return err
	}
	if len(o.labels) > 0 && namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	maps.Copy(namespace.Labels, o.labels)
	if o.requestedBy != "" {
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, v1alpha1.AnnotationRequestedBy, o.requestedBy)
	}
	if err := template.SetParameters(namespace, values); err != nil {
		return err
	}
	var documents bytes.Buffer
	if err := template.WriteFor(ctx, &documents, namespace); err != nil {
		return err
	}
	if err := template.CheckSelected(namespace); err != nil {
		o.warnf("%v", err)
	}
	_, err = o.Out.Write(documents.Bytes())
	return err
}

// namespace returns the Namespace in the file, the Namespace of the cluster, or a new one, which chooses a template
// without a selector. The cluster is read only if the template is from the cluster.
func (o *templateRenderOptions) namespace(
	ctx context.Context, template *templates.Template,
) (*corev1.Namespace, error) {
	if o.namespaceFile != "" {
		if o.namespaceFile == templates.Stdin && o.filename == templates.Stdin {
			return nil, errors.New("only one file can be read from stdin")
		}
		return templates.ReadNamespace(o.namespaceFile, o.In)
	}
	name := *o.flags.Namespace
	created := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelMetadataName: name,
	}}}
	if template.Spec.NamespaceSelector == nil {
		created.Labels[v1alpha1.LabelTemplate] = template.Name
	}
	if o.filename != "" {
		return created, nil
	}
	client, err := o.namespaces()
	if err != nil {
		return nil, err
	}
	found, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		printf(o.ErrOut, "Namespace %q not found. The objects are those of a new namespace.", name)
		return created, nil
	}
	return found, err
}

type templateTestOptions struct {
	*session
	update bool
}

func newTemplateTestCommand(session *session) *cobra.Command {
	options := &templateTestOptions{session: session}
	command := &cobra.Command{
		Use:   "test PATH...",
		Short: "Compare the objects of NamespaceTemplates with expected files",
		Long: `Render NamespaceTemplates and compare the results with files. The command needs no cluster.

A directory with the file template.yaml is a test suite. Each directory in it that contains
the file namespace.yaml is a test case. The namespace has the parameters and the name of its
creator as annotations. The expected result is in one of two files:

  expected.yaml  the objects, as "kubectl nslifecycle template render" prints them
  error.txt      the error, for example because of an invalid parameter

For a directory, the command runs all suites in it. For a file, it runs the test cases beside
it. A suite without test cases and a test case without an expected result fail. Only regular
files are read and written.`,
		Example: `  # Run all tests in a directory
  kubectl nslifecycle template test ./templates

  # Write the expected results
  kubectl nslifecycle template test ./templates --update`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("at least one file or directory is required; "+msgSeeHelp, command.CommandPath())
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	command.Flags().BoolVar(&options.update, "update", false,
		"If true, write the results to the files instead of comparing them.")
	return command
}

func (o *templateTestOptions) run(ctx context.Context, paths []string) error {
	results, err := templates.RunTests(ctx, paths, o.update)
	if err != nil {
		return err
	}
	colors := printer.NewPalette(o.Out)
	failed := 0
	for _, result := range results {
		switch {
		case result.HasFailed():
			failed++
			fmt.Fprintf(o.Out, "%s    %s\n", colors.Red("FAIL"), result.Name)
			o.printFailure(result, colors)
		case result.Updated != "":
			fmt.Fprintf(o.Out, "%s %s\n", colors.Yellow("updated"), result.Updated)
		default:
			fmt.Fprintf(o.Out, "%s      %s\n", colors.Green("ok"), result.Name)
		}
	}
	fmt.Fprintf(o.Out, "%s, %d failed.\n", printable.Count(len(results), "test case"), failed)
	if failed > 0 {
		return &StatusError{Code: ExitError}
	}
	return nil
}

func (o *templateTestOptions) printFailure(result templates.Result, colors printer.Palette) {
	if result.Err != nil {
		const indent = "        "
		text := printer.Wrap(result.Err.Error(), printer.TextWidth(o.Out)-len(indent))
		fmt.Fprintln(o.Out, indent+strings.ReplaceAll(text, "\n", "\n"+indent))
		return
	}
	for line := range strings.Lines(result.Diff) {
		text := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(text, "+"):
			text = colors.Green(text)
		case strings.HasPrefix(text, "-"):
			text = colors.Red(text)
		}
		fmt.Fprintln(o.Out, text)
	}
}
