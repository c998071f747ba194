// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
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
    kubectl nslifecycle template render -f team.yaml --namespace-file=-

  # Compare the objects with a file
  kubectl nslifecycle template render -f team.yaml --namespace=shop | diff expected.yaml -`,
		Args:              options.validate,
		ValidArgsFunction: session.completeTemplate,
		RunE:              runWithContext(options.run),
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
	for key, value := range o.labels {
		metav1.SetMetaDataLabel(&namespace.ObjectMeta, key, value)
	}
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
