// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/template/execute"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
)

var errTemplatesNotServed = errors.New("the API server does not serve NamespaceTemplates; install nslifecycle first")

const messageOneTemplate = "exactly one NamespaceTemplate is required; " + messageSeeHelp

func newTemplateCommand(session *session) *cobra.Command {
	command := &cobra.Command{
		Use:     "template",
		Aliases: []string{"templates"},
		Short:   "List, render, compare, authorize and roll back NamespaceTemplates",
		Long: `List, render, compare, authorize and roll back NamespaceTemplates.

Only "rollout pause", "rollout resume" and "rollout undo" change the cluster.`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(
		newTemplateDiffCommand(session),
		newTemplateListCommand(session),
		newTemplatePermissionsCommand(session),
		newTemplateRenderCommand(session),
		newTemplateRolloutCommand(session),
		newTemplateStatusCommand(session),
	)
	return command
}

var templateResource = v1alpha1.GroupVersion.WithResource("namespacetemplates")

// templateReader reads NamespaceTemplates.
type templateReader struct {
	client dynamic.NamespaceableResourceInterface
}

func (s *session) templates() (*templateReader, error) {
	client, err := newClient(s, dynamic.NewForConfig)
	if err != nil {
		return nil, err
	}
	return &templateReader{client: client.Resource(templateResource)}, nil
}

func (r *templateReader) get(ctx context.Context, name string) (*v1alpha1.NamespaceTemplate, error) {
	found, err := r.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, templateError(err)
	}
	template := &v1alpha1.NamespaceTemplate{}
	return template, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, template)
}

// template returns a NamespaceTemplate of the cluster, and the reader that has read it.
func (s *session) template(
	ctx context.Context, name string,
) (*templateReader, *v1alpha1.NamespaceTemplate, error) {
	reader, err := s.templates()
	if err != nil {
		return nil, nil, err
	}
	object, err := reader.get(ctx, name)
	return reader, object, err
}

// list returns all NamespaceTemplates of the cluster, sorted by name.
func (r *templateReader) list(ctx context.Context) ([]v1alpha1.NamespaceTemplate, error) {
	found, err := r.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, templateError(err)
	}
	list := &v1alpha1.NamespaceTemplateList{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), list)
	return list.Items, err
}

// templateError explains why NamespaceTemplates cannot be read if the API server does not serve them.
func templateError(err error) error {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return errTemplatesNotServed
	}
	return err
}

// completeTemplate completes a flag or the first argument with the names of NamespaceTemplates.
func (s *session) completeTemplate(
	command *cobra.Command, args []string, _ string,
) ([]string, cobra.ShellCompDirective) {
	return completeNames(command, args, func(ctx context.Context) []string {
		reader, err := s.templates()
		if err != nil {
			return nil
		}
		list, _ := reader.list(ctx)
		var names []string
		for i := range list {
			names = append(names, list[i].Name)
		}
		return names
	})
}

// templateSource selects a NamespaceTemplate: one of the cluster by name, or one in a file.
type templateSource struct {
	*session
	filename string
}

func (s *templateSource) addFlag(command *cobra.Command) {
	command.Flags().StringVarP(&s.filename, "filename", "f", "",
		"File with a NamespaceTemplate, or - for stdin, instead of the name of one in the cluster.")
	_ = command.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// validate requires either a name or a file.
func (s *templateSource) validate(command *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return fmt.Errorf(messageOneTemplate, command.CommandPath())
	case len(args) == 1 && args[0] != "" && s.filename != "":
		return errors.New("the name of a NamespaceTemplate and --filename are mutually exclusive")
	case (len(args) == 0 || args[0] == "") && s.filename == "":
		return fmt.Errorf("the name of a NamespaceTemplate or --filename is required; "+messageSeeHelp, command.CommandPath())
	}
	return nil
}

// read returns the selected NamespaceTemplate. With a file, it sends no request.
func (s *templateSource) read(ctx context.Context, args []string) (*templates.Template, error) {
	if s.filename != "" {
		object, err := templates.ReadTemplate(s.filename, s.In)
		if err != nil {
			return nil, err
		}
		return templates.Compile(object)
	}
	_, object, err := s.template(ctx, args[0])
	if err != nil {
		return nil, err
	}
	return templates.Compile(object)
}

// templateWriter returns a Writer with the permissions of the user.
func (s *session) templateWriter() (*execute.Writer, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, err
	}
	discoverer, _, err := s.contentClients()
	if err != nil {
		return nil, err
	}
	dryRuns, err := s.dryRuns()
	if err != nil {
		return nil, err
	}
	return &execute.Writer{Config: config, DryRuns: dryRuns, Kinds: &observe.Kinds{
		Mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoverer)),
		Discovery: discoverer, Clock: clock.RealClock{},
	}}, nil
}

// oneTemplate requires exactly one argument.
func oneTemplate(command *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return fmt.Errorf(messageOneTemplate, command.CommandPath())
	}
	return nil
}

// templateNamespaces returns the Namespaces that templates can select, or only the given one.
func (s *session) templateNamespaces(ctx context.Context, name string) ([]corev1.Namespace, error) {
	if name != "" {
		client, err := s.namespaces()
		if err != nil {
			return nil, err
		}
		namespace, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if s.isExempt(ctx)(name) {
			return nil, fmt.Errorf("no template can select namespace %q, because it is exempt from initialization", name)
		}
		return []corev1.Namespace{*namespace}, nil
	}
	namespaces, err := s.listNamespaces(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	isExempt := s.isExempt(ctx)
	return slices.DeleteFunc(namespaces.Items, func(namespace corev1.Namespace) bool {
		return isExempt(namespace.Name)
	}), nil
}

// isExempt returns a function that reports whether a Namespace is exempt from initialization. Without permission to
// read the names of the operator's namespaces, only these are not recognized.
func (s *session) isExempt(ctx context.Context) func(name string) bool {
	system, source, _ := s.operatorNamespaces(ctx)
	exempt := initialization.Exempt(system, source)
	return func(name string) bool { return slices.Contains(exempt, name) }
}
