// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

const (
	// modeAudit, modeEnforce and modeMixed are what the bindings of the gate do with early writes.
	modeAudit   = "audit"
	modeEnforce = "enforce"
	modeMixed   = "mixed"

	// observationTimeout is how long the command waits until the operator has observed a change.
	observationTimeout  = 15 * time.Second
	observationInterval = 200 * time.Millisecond
)

// modeTexts describe the modes.
var modeTexts = map[string]string{
	modeAudit: "API servers admit writes before a namespace is initialized with a warning, and record them in their " +
		"audit log.",
	modeEnforce: "Writes before a namespace is initialized are held, and rejected without the hold webhook.",
	modeMixed:   "Some bindings of the gate deny writes before a namespace is initialized, and others only warn.",
}

// settings are how to set the mode in the source of an installation.
var settings = map[string]string{
	modeAudit: "add the component config/audit to the kustomization, or set enforcement=Audit in the values of the chart",
	modeEnforce: "remove the component config/audit from the kustomization, or set enforcement=Enforce in the values of " +
		"the chart",
}

// messageManaged is the reason why the mode should not be changed with the plugin.
const messageManaged = "%s manages the bindings of the gate, and reverts changes by other clients when it applies " +
	"them again; %s"

// messagePrevious is what depends on the operator.
const messagePrevious = "until then, the hold webhook and the policy waiting-subjects use the previous one"

type enforcementOptions struct {
	*session
	output printer.Output
	force  bool
}

func newEnforcementCommand(session *session) *cobra.Command {
	options := &enforcementOptions{session: session}
	command := &cobra.Command{
		Use:   "enforcement [audit | enforce]",
		Short: "Show or set whether early writes are rejected or only audited",
		Long: `Show or set what API servers do with early writes: writes to initializing namespaces by users
without the verb "initialize" or "provision".

In audit mode, API servers admit them with a warning, and record them in their audit log.

The mode is the validationActions of the ValidatingAdmissionPolicyBindings of the policy "gate". The
operator copies it to those of "waiting-subjects". All other policies are enforced in both modes.

If Helm, Flux, Argo CD or another tool manages the bindings, the command does not change them without
--force: the tool would revert the change when it applies them again. Set the mode in its source
instead, with the component config/audit or the value enforcement of the chart.`,
		Example: `  # Show the mode
  kubectl nslifecycle enforcement

  # Admit early writes with a warning
  kubectl nslifecycle enforcement audit

  # Reject early writes
  kubectl nslifecycle enforcement enforce`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && args[0] != modeAudit && args[0] != modeEnforce {
				return fmt.Errorf("the argument must be %s or %s, got %s", modeAudit, modeEnforce, strings.Join(args, ", "))
			}
			return nil
		},
		ValidArgs: []string{modeAudit, modeEnforce},
		RunE: func(command *cobra.Command, args []string) error {
			if len(args) == 0 {
				return options.show(command.Context())
			}
			return options.set(command.Context(), args[0])
		},
	}
	options.output.AddFlag(command)
	command.Flags().BoolVar(&options.force, "force", false,
		"If true, also change bindings that another tool manages, until it applies them again.")
	return command
}

// operatorClient returns a client for the types of the operator.
func (s *session) operatorClient() (client.Client, error) {
	return newClient(s, func(config *rest.Config) (client.Client, error) {
		config.WarningHandlerWithContext = rest.NoWarnings{}
		return client.New(config, client.Options{Scheme: scheme.New()})
	})
}

// show prints the mode.
func (o *enforcementOptions) show(ctx context.Context) error {
	reader, err := o.operatorClient()
	if err != nil {
		return err
	}
	bindings, err := gateBindings(ctx, reader)
	if err != nil {
		return err
	}
	mode := modeOf(bindings)
	set, err := effectiveSet(ctx, reader)
	if err != nil {
		return err
	}
	if o.output.IsStructured() {
		return o.output.Print(o.Out, "Enforcement", map[string]any{"mode": mode})
	}
	printf(o.Out, "Mode: %s. %s", mode, modeTexts[mode])
	if mode == modeMixed {
		o.warnf("Set the mode again, with: %s", o.withConnection(displayName+" enforcement "+modeEnforce))
	}
	if !isObserved(mode, set) {
		o.warnf("The operator has not observed the mode yet; %s.", messagePrevious)
	}
	return nil
}

func effectiveSet(ctx context.Context, reader client.Reader) (*internalv1alpha1.NamespaceInitializerSet, error) {
	set := &internalv1alpha1.NamespaceInitializerSet{}
	if err := reader.Get(ctx, client.ObjectKey{Name: internalv1alpha1.EffectiveSetName}, set); err != nil {
		return nil, fmt.Errorf("failed to get NamespaceInitializerSet %q: %w", internalv1alpha1.EffectiveSetName, err)
	}
	return set, nil
}

// isObserved reports whether the operator has observed a mode. It holds writes in all modes other than audit.
func isObserved(mode string, set *internalv1alpha1.NamespaceInitializerSet) bool {
	return (mode == modeAudit) == (set.Status.Enforcement == internalv1alpha1.EnforcementAudit)
}

// set changes the mode.
func (o *enforcementOptions) set(ctx context.Context, mode string) error {
	writer, err := o.operatorClient()
	if err != nil {
		return err
	}
	bindings, err := gateBindings(ctx, writer)
	if err != nil {
		return err
	}
	// With --force, also those in the mode with other actions: they can prevent that their manager applies them.
	differing := slices.DeleteFunc(slices.Clone(bindings),
		func(binding admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
			if o.force {
				return slices.Equal(slices.Sorted(slices.Values(binding.Spec.ValidationActions)), actionsOf[mode])
			}
			return isDenying(&binding) == (mode == modeEnforce)
		})
	managers := strings.Join(managersOf(differing), ", ")
	if managers != "" && !o.force {
		return fmt.Errorf(messageManaged+"; to change them nevertheless, add --force", managers, settings[mode])
	}
	if len(differing) == 0 {
		fmt.Fprintf(o.Out, "unchanged (%s)\n", mode)
	}
	for i := range differing {
		if err := setActions(ctx, writer, &differing[i], actionsOf[mode]); err != nil {
			return err
		}
		fmt.Fprintf(o.Out, "%s patched (%s)\n", differing[i].Name, mode)
	}
	if managers != "" {
		o.warnf(messageManaged+".", managers, settings[mode])
	}
	o.waitObserved(ctx, writer, mode)
	return ctx.Err()
}

// waitObserved waits until the operator has observed the mode. The gate does not depend on it.
func (o *enforcementOptions) waitObserved(ctx context.Context, reader client.Reader, mode string) {
	var last error
	err := wait.PollUntilContextTimeout(ctx, observationInterval, observationTimeout, true,
		func(ctx context.Context) (bool, error) {
			set, err := effectiveSet(ctx, reader)
			last = err
			return err == nil && isObserved(mode, set), nil
		})
	switch {
	case last != nil && ctx.Err() == nil:
		o.warnf("It is unknown whether the operator has observed the mode: %v", last)
	case err != nil && ctx.Err() == nil:
		o.warnf("The operator has not observed the mode in %s; %s.", observationTimeout, messagePrevious)
	}
}
