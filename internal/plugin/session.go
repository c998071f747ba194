// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/nslifecycle/nslifecycle/internal/contentrole"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/shell"
	"github.com/nslifecycle/nslifecycle/internal/version"
)

// session contains the streams and the flags that all commands share.
type session struct {
	genericiooptions.IOStreams

	flags *genericclioptions.ConfigFlags
	// flagSet records which of these flags the user has set.
	flagSet   *pflag.FlagSet
	verbosity int
}

// connectionFlags are the flags that select the cluster and the user. The values of --token and --proxy-url are not
// printed, because they can contain credentials.
var connectionFlags = []string{
	"kubeconfig", "context", "cluster", "user", "server", "tls-server-name", "certificate-authority",
	"insecure-skip-tls-verify", "client-certificate", "client-key", "as", "as-uid", "as-group", "as-user-extra",
}

// Texts of several commands.
const (
	messageSeeHelp     = "see '%s --help' for usage"
	messageDryRunValue = "invalid --dry-run value %q; must be one of %s"

	helpTimeout = "The length of time to wait before giving up. Zero means no timeout."
)

func newSession(streams genericiooptions.IOStreams) *session {
	flags := genericclioptions.NewConfigFlags(true)
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		// The audit log of the API server contains the user agent.
		config.UserAgent = commandName + "/" + version.Read().Version
		// API Priority and Fairness limits the plugin's requests, and the plugin never retries in a loop.
		config.QPS = -1
		return config
	}
	flagSet := pflag.NewFlagSet(commandName, pflag.ContinueOnError)
	flags.AddFlags(flagSet)
	return &session{IOStreams: streams, flags: flags, flagSet: flagSet}
}

func (s *session) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.AddFlagSet(s.flagSet)
	flags.IntVarP(&s.verbosity, "v", "v", 0, "Number for the log level verbosity (0 to 10).")
	_ = root.RegisterFlagCompletionFunc("context", s.completeContexts)
}

// configureLogs discards the logs of client-go unless the user sets a verbosity, because commands
// print all relevant errors.
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

// withConnection adds the connection flags that the user has set to a command that a message proposes, so that the
// command uses the same cluster and the same user.
func (s *session) withConnection(command string) string {
	var flags []shell.Flag
	for _, name := range connectionFlags {
		option := s.flagSet.Lookup(name)
		// A remedy can impersonate another user.
		isOverridden := strings.HasPrefix(name, "as") && strings.Contains(command, " --as=")
		if !option.Changed || isOverridden {
			continue
		}
		values := []string{option.Value.String()}
		if list, ok := option.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if value != "" {
				flags = append(flags, shell.Flag{Name: name, Value: value})
			}
		}
	}
	return shell.WithFlags(command, flags)
}

// restConfig returns the client configuration for the kubeconfig flags. It sends no request.
func (s *session) restConfig() (*rest.Config, error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("failed to load the client configuration: %w; see --kubeconfig and --context", err)
	}
	return config, nil
}

// newClient returns a client for the kubeconfig flags.
func newClient[T any](s *session, construct func(*rest.Config) (T, error)) (client T, err error) {
	config, err := s.restConfig()
	if err != nil {
		return client, err
	}
	if client, err = construct(config); err != nil {
		return client, fmt.Errorf("failed to create a client: %w", err)
	}
	return client, nil
}

// namespaceName returns the argument of a read-only command. Without an argument, it returns the
// namespace of the flag -n or of the current context.
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

func (s *session) namespaces() (corev1client.NamespaceInterface, error) {
	return newClient(s, func(config *rest.Config) (corev1client.NamespaceInterface, error) {
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		config.ContentType = runtime.ContentTypeProtobuf
		client, err := corev1client.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return client.Namespaces(), nil
	})
}

// listNamespaces returns the Namespaces that options select, sorted by name.
func (s *session) listNamespaces(ctx context.Context, options metav1.ListOptions) (*corev1.NamespaceList, error) {
	client, err := s.namespaces()
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, options)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.Namespace) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// userName returns the name of the user who runs the command.
func (s *session) userName(ctx context.Context) (string, error) {
	client, err := newClient(s, authenticationv1client.NewForConfig)
	if err != nil {
		return "", err
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to get the name of the user: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// contentClients returns clients for discovery and for the metadata of objects of all types. The
// clients suppress warnings about deprecated types.
func (s *session) contentClients() (*discovery.DiscoveryClient, metadata.Interface, error) {
	discoverer, err := newClient(s, func(config *rest.Config) (*discovery.DiscoveryClient, error) {
		config.WarningHandlerWithContext = rest.NoWarnings{}
		return discovery.NewDiscoveryClientForConfig(config)
	})
	if err != nil {
		return nil, nil, err
	}
	objects, err := newClient(s, func(config *rest.Config) (metadata.Interface, error) {
		config.WarningHandlerWithContext = rest.NoWarnings{}
		return metadata.NewForConfig(config)
	})
	return discoverer, metadataclient.New(objects), err
}

// dryRuns returns the Guard of dry runs, which reads APIServices with the permissions of the user.
func (s *session) dryRuns() (*dryrun.Guard, error) {
	reader, err := s.operatorClient()
	if err != nil {
		return nil, err
	}
	return dryrun.New(contentrole.IsAggregated(reader)), nil
}

// warnf prints a warning to stderr.
func (s *session) warnf(format string, args ...any) {
	const label = "Warning:"
	text := wrapMessage(label+" "+format, args)
	fmt.Fprintln(s.ErrOut, printer.NewPalette(s.ErrOut).Yellow(label)+strings.TrimPrefix(text, label))
}

// printf wraps a message and writes it as a paragraph.
func printf(out io.Writer, format string, args ...any) {
	fmt.Fprintln(out, wrapMessage(format, args))
}

// wrapMessage formats and wraps a message. Only a command in the last argument gets its own line: the other
// arguments can contain text that other users have chosen.
func wrapMessage(format string, args []any) string {
	text := fmt.Sprintf(format, args...)
	if len(args) > 0 {
		if command, ok := args[len(args)-1].(string); ok && shell.IsCommand(command) {
			return printer.WrapCommand(text)
		}
	}
	return printer.Wrap(text)
}

// warnEach prints one warning for each string, or for several strings that differ only in the resource
// type. If there are too many, for example because the API server does not respond, it prints only the
// first warnings and the number of further warnings.
func (s *session) warnEach(prefix string, texts []string) {
	const limit = 5
	texts = joinByReason(texts)
	shown := texts
	if s.verbosity == 0 && len(texts) > limit {
		shown = texts[:limit]
	}
	for _, text := range shown {
		s.warnf("%s", prefix+": "+text)
	}
	if more := len(texts) - len(shown); more > 0 {
		s.warnf("%s: %d more warnings like this; use -v=1 to print them all", prefix, more)
	}
}

// joinByReason joins texts that differ only in their first word, which is the resource type. It
// shortens errors about missing permissions accordingly.
func joinByReason(texts []string) []string {
	var reasons []string
	resources := map[string][]string{}
	for _, text := range texts {
		if missing := denial.MissingPermissions(text); len(missing) > 0 {
			text = fmt.Sprintf("%s cannot be read: user %q has no permission to %s them", missing[0].GroupResource(),
				missing[0].User, missing[0].Verb)
		}
		resource, reason, _ := strings.Cut(text, " ")
		if resources[reason] == nil {
			reasons = append(reasons, reason)
		}
		if !slices.Contains(resources[reason], resource) {
			resources[reason] = append(resources[reason], resource)
		}
	}
	joined := make([]string, 0, len(reasons))
	for _, reason := range reasons {
		joined = append(joined, strings.TrimSpace(strings.Join(resources[reason], ", ")+" "+reason))
	}
	return joined
}

// confirm returns an error unless the user confirms a change with --confirm or, on a terminal, with the name of the
// namespace.
func (s *session) confirm(ctx context.Context, name, confirmed, question string) error {
	switch {
	case confirmed == name:
		return nil
	case confirmed != "":
		return fmt.Errorf("--confirm=%s does not match the name of the namespace, %q", confirmed, name)
	case !printer.IsTerminal(s.In) || !printer.IsTerminal(s.ErrOut):
		return fmt.Errorf("cannot prompt without a terminal; use --confirm=%s to confirm", name)
	}
	printf(s.ErrOut, "%s", question)
	fmt.Fprint(s.ErrOut, "To confirm, type the name of the namespace: ")
	typed, err := s.readLine(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(s.ErrOut)
		return err
	case typed != name:
		return fmt.Errorf("%q does not match the name of the namespace, %q", typed, name)
	}
	return nil
}

// readLine reads a line from the terminal. It also returns when the context is canceled, because a
// signal does not interrupt the read.
func (s *session) readLine(ctx context.Context) (string, error) {
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(s.In).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil // The last line might not end with a line feed.
		}
		answers <- answer{strings.TrimSpace(line), err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case answer := <-answers:
		return answer.line, answer.err
	}
}

func (s *session) explainCommand(name string) string {
	return s.withConnection(shell.Command(displayName+" explain %s", name))
}

func (s *session) deleteCommand(name string) string {
	return s.withConnection(shell.Command(displayName+" delete %s", name))
}

func (s *session) waitCommand(name string) string {
	return s.withConnection(shell.Command(displayName+" wait %s", name))
}
