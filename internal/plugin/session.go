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

	"github.com/nslifecycle/nslifecycle/internal/inventory"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/version"
)

// userAgent starts what the API server's audit log says of the plugin.
const userAgent = "kubectl-nslifecycle"

// session is what all commands share.
type session struct {
	genericiooptions.IOStreams

	flags     *genericclioptions.ConfigFlags
	verbosity int
}

func newSession(streams genericiooptions.IOStreams) *session {
	flags := genericclioptions.NewConfigFlags(true)
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.UserAgent = userAgent + "/" + version.Read().Version
		// The plugin asks for each type at once, when it is asked, and never in a loop of
		// its own: the API server's priority and fairness is all the limit that it needs.
		config.QPS = -1
		return config
	}
	return &session{IOStreams: streams, flags: flags}
}

func (s *session) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	s.flags.AddFlags(flags)
	flags.IntVarP(&s.verbosity, "v", "v", 0, "How much to log of the requests that are made (0 to 10)")
	_ = root.RegisterFlagCompletionFunc("context", s.completeContexts)
}

// quietLogs keeps the client library's own log to itself, unless the user has asked for
// it: whatever matters in it is an error that a command reports.
func (s *session) quietLogs() {
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

// restConfig returns the configuration that the kubeconfig flags describe. It does not
// contact the server.
func (s *session) restConfig() (*rest.Config, error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to talk to: %w; see --kubeconfig and --context", err)
	}
	return config, nil
}

// namespaceName returns the namespace that a command which only reads is about: its
// argument, or else what -n or the kubeconfig's context say, as everywhere in kubectl.
func (s *session) namespaceName(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	name, _, err := s.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("finding the namespace of the current context: %w", err)
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
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client.Namespaces(), nil
}

// contentClients returns clients that discover types and read the metadata of whatever there
// is of them. Types that are deprecated are read too, without a word about it.
func (s *session) contentClients() (inventory.Discoverer, metadata.Interface, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, nil, err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client: %w", err)
	}
	return discoverer, metadataclient.New(objects), nil
}

// warnf prints a sentence to stderr that is not an error of the command.
func (s *session) warnf(format string, args ...any) {
	fmt.Fprintln(s.ErrOut, s.palette(s.ErrOut).yellow("Warning:")+" "+paragraph(fmt.Sprintf(format, args...)))
}

// warnEach prints a warning for each of some gaps. Where there are many, such as one for
// each type in a cluster that does not answer, it counts most of them, unless the user has
// asked for more.
func (s *session) warnEach(about string, gaps []string) {
	const most = 5
	shown := gaps
	if s.verbosity == 0 && len(gaps) > most {
		shown = gaps[:most]
	}
	for _, gap := range shown {
		s.warnf("%s: %s", about, gap)
	}
	if more := len(gaps) - len(shown); more > 0 {
		s.warnf("%s: %d more like these; -v=1 shows them all", about, more)
	}
}
