// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"maps"

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
		Use:               "render (NAME | -f FILE) (--namespace=NAME | --namespace-file=FILE)",
		Short:             shortTemplateRender,
		Long:              longTemplateRender,
		Example:           exampleTemplateRender,
		Args:              options.validate,
		ValidArgsFunction: session.completeTemplate,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	options.addFlag(command)
	flags := command.Flags()
	flags.StringVar(&options.namespaceFile, "namespace-file", "", helpNamespaceFile)
	flags.StringArrayVarP(&options.parameters, "parameter", "p", nil, helpRenderParameter)
	flags.StringToStringVarP(&options.labels, "labels", "l", nil, helpRenderLabels)
	flags.StringVar(&options.requestedBy, "requested-by", "", helpRequestedBy)
	return command
}

func (o *templateRenderOptions) run(ctx context.Context, args []string) error {
	values, err := templates.ParseParameters(o.parameters)
	if err != nil {
		return err
	}
	if (o.namespaceFile != "") == (*o.flags.Namespace != "") {
		return errNamespaceOrFile
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

// namespace returns the Namespace in the file, the Namespace of the cluster, or a new one that chooses
// the template. The cluster is read only if the template is from the cluster.
func (o *templateRenderOptions) namespace(
	ctx context.Context, template *templates.Template,
) (*corev1.Namespace, error) {
	if o.namespaceFile != "" {
		if o.namespaceFile == templates.Stdin && o.filename == templates.Stdin {
			return nil, errStdinTwice
		}
		return templates.ReadNamespace(o.namespaceFile, o.In)
	}
	name := *o.flags.Namespace
	created := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{v1alpha1.LabelTemplate: template.Name},
	}}
	if o.filename != "" {
		return created, nil
	}
	client, err := o.namespaces()
	if err != nil {
		return nil, err
	}
	found, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		printf(o.ErrOut, msgRenderNew, name)
		return created, nil
	}
	return found, err
}
