// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"flag"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/version"
)

// userAgent identifies the plugin in the audit log of the API server.
const userAgent = "kubectl-nslifecycle"

// session holds what all commands share.
type session struct {
	genericiooptions.IOStreams

	flags     *genericclioptions.ConfigFlags
	verbosity int
}

func newSession(streams genericiooptions.IOStreams) *session {
	flags := genericclioptions.NewConfigFlags(true)
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.UserAgent = userAgent + "/" + version.Read().Version
		// API Priority and Fairness limits the requests of the plugin, which never retries in a loop.
		config.QPS = -1
		return config
	}
	return &session{IOStreams: streams, flags: flags}
}

func (s *session) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	s.flags.AddFlags(flags)
	flags.IntVarP(&s.verbosity, "v", "v", 0, helpVerbosity)
	_ = root.RegisterFlagCompletionFunc("context", s.completeContexts)
}

// configureLogs discards the logs of client-go unless the user has set a verbosity, because
// commands report all errors that matter.
func (s *session) configureLogs() {
	var logging flag.FlagSet
	klog.InitFlags(&logging)
	for name, value := range map[string]string{
		"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true",
		"v": strconv.Itoa(s.verbosity),
	} {
		_ = logging.Set(name, value)
	}
	klog.SetOutput(io.Discard)
	if s.verbosity > 0 {
		klog.SetOutput(s.ErrOut)
	}
}

// restConfig returns the client configuration of the kubeconfig flags. It sends no request.
func (s *session) restConfig() (*rest.Config, error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, errNoCluster(err)
	}
	return config, nil
}

// namespaceName returns the argument of a read-only command, or the namespace of the flag -n or
// the current context.
func (s *session) namespaceName(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	name, _, err := s.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("failed to read the namespace of the current context: %w", err)
	}
	return name, nil
}

// namespaces returns a client for Namespaces.
func (s *session) namespaces() (corev1client.NamespaceInterface, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, err
	}
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, errClient(err)
	}
	return client.Namespaces(), nil
}

// contentClients returns clients for discovery and for the metadata of objects of all types.
// They suppress the warnings for deprecated types.
func (s *session) contentClients() (resourcetypes.Discoverer, metadata.Interface, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, nil, err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, errClient(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, errClient(err)
	}
	return discoverer, metadataclient.New(objects), nil
}

// warnf prints a warning to stderr.
func (s *session) warnf(format string, args ...any) {
	fmt.Fprintln(s.ErrOut, printer.NewPalette(s.ErrOut).Yellow("Warning:")+" "+
		printer.IndentContinuation(fmt.Sprintf(format, args...)))
}

// warnEach prints one warning for each text. If there are many, for example one for each type of
// a cluster that does not respond, it prints the first ones and the number of the others.
func (s *session) warnEach(prefix string, texts []string) {
	const limit = 5
	shown := texts
	if s.verbosity == 0 && len(texts) > limit {
		shown = texts[:limit]
	}
	for _, text := range shown {
		s.warnf("%s: %s", prefix, text)
	}
	if more := len(texts) - len(shown); more > 0 {
		s.warnf("%s: %s", prefix, msgMoreWarnings(more))
	}
}
