// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/earlywrites"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// The ClusterRoles that allow early writes. An initializer also needs to change the pending list.
const (
	provisionerRole = "nslifecycle-namespace-provisioner"
	initializerRole = "nslifecycle-namespace-initializer"
)

// identity is a user with early writes.
type identity struct {
	earlywrites.Identity
	// Grant is a command that allows the user to write early; empty for users that are counted together.
	Grant string `json:"grant,omitempty"`
}

// listEarlyWrites returns the users with early writes, those with the most writes first.
func listEarlyWrites(
	ctx context.Context, reader client.Reader, set *internalv1alpha1.NamespaceInitializerSet,
) ([]identity, error) {
	var events eventsv1.EventList
	err := reader.List(ctx, &events, client.InNamespace(set.SystemNamespace),
		client.MatchingFields{"reason": earlywrites.Reason})
	if err != nil {
		return nil, fmt.Errorf("failed to list the Events of early writes: %w", err)
	}
	sums := earlywrites.Sum(events.Items)
	identities := make([]identity, 0, len(sums))
	for _, sum := range sums {
		identities = append(identities, identity{Identity: *sum, Grant: grantCommand(sum.Subject, set)})
	}
	slices.SortFunc(identities, func(a, b identity) int {
		return cmp.Or(cmp.Compare(b.Writes, a.Writes), cmp.Compare(subjectText(a.Subject), subjectText(b.Subject)))
	})
	return identities, nil
}

// grantCommand returns a command that allows a subject to write to all initializing namespaces.
func grantCommand(subject rbacv1.Subject, set *internalv1alpha1.NamespaceInitializerSet) string {
	role := provisionerRole
	if isInitializer(subject, set) {
		role = initializerRole
	}
	name := strings.NewReplacer("/", "-", "%", "-").Replace(subject.Name)
	binding, create := "early-writes-"+name, ""
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		binding = fmt.Sprintf("early-writes-%s-%s", subject.Namespace, name)
		create = shell.Command("kubectl create clusterrolebinding %s --clusterrole=%s --serviceaccount=%s:%s",
			binding, role, subject.Namespace, subject.Name)
	case rbacv1.UserKind:
		create = shell.Command("kubectl create clusterrolebinding %s --clusterrole=%s --user=%s", binding, role, subject.Name)
	default:
		return ""
	}
	return shell.Then(create, shell.Command("kubectl label clusterrolebinding/%s %s=%s", binding,
		internalv1alpha1.LabelName, internalv1alpha1.Name))
}

// isInitializer reports whether an initializer of the set has the subject.
func isInitializer(subject rbacv1.Subject, set *internalv1alpha1.NamespaceInitializerSet) bool {
	for i := range set.Initializers {
		for _, of := range set.Initializers[i].Subjects {
			if string(of.Kind) == subject.Kind && of.Namespace == subject.Namespace && of.Name == subject.Name {
				return true
			}
		}
	}
	return false
}

func subjectText(subject rbacv1.Subject) string {
	name := subject.Name
	if subject.Namespace != "" {
		name = subject.Namespace + "/" + name
	}
	return subject.Kind + " " + printable.Name(name)
}

func (o *enforcementOptions) printEarlyWrites(writes []identity) error {
	if len(writes) == 0 {
		fmt.Fprintln(o.Out, "No early writes are recorded.")
		return nil
	}
	fmt.Fprintln(o.Out)
	table := printer.NewTable("Early writes by", "Writes", "Last", "Resources", "Clients")
	for i := range writes {
		printer.AddRow(table, subjectText(writes[i].Subject), writes[i].Writes,
			printer.Age(metav1.NewTime(writes[i].Last), time.Now()),
			counts(writes[i].Resources), counts(writes[i].Clients))
	}
	if err := o.output.NewTable(o.Out).Print(table); err != nil {
		return err
	}
	fmt.Fprintln(o.Out)
	printf(o.Out, "Clients are the field managers in the requests; most controllers set none. When the gate is enforced, "+
		"kubectl and other clients with client-go wait. To allow an identity that you know to write to all initializing "+
		"namespaces, run its command:")
	for i := range writes {
		if writes[i].Grant != "" {
			fmt.Fprintln(o.Out, "  "+o.withConnection(writes[i].Grant))
		}
	}
	return nil
}

// counts formats counters, the largest first.
func counts(of map[string]int) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
	texts := make([]string, 0, len(names))
	for _, name := range names {
		texts = append(texts, fmt.Sprintf("%s (%d)", cmp.Or(printable.Cut(name, 40), "<none>"), of[name]))
	}
	return strings.Join(texts, ", ")
}
