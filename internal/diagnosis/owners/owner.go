// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// Owner is what the facts show about the controller responsible for a finalizer.
type Owner struct {
	// Known describes the controller if it is a common one; otherwise, it is nil.
	Known *KnownFinalizer
	State diagnosis.OwnerState
	// Workloads are inferred to be the owner.
	Workloads []*diagnosis.Workload
	// Evidence describes who added the finalizer, how the owner was identified, and whether it is running.
	Evidence []diagnosis.Evidence
	// MissingAccount is a ServiceAccount with the permissions of the owner that does not exist. It is nil if
	// another such ServiceAccount exists, or if there is other evidence of the owner.
	MissingAccount *Account
	// Unread are the sources of evidence that could not be read.
	Unread []diagnosis.Source
}

// recentChange is how long a change of an object shows that its field manager is running.
const recentChange = 10 * time.Minute

var sources = []diagnosis.Source{
	diagnosis.SourceClusterRoles, diagnosis.SourceClusterRoleBindings, diagnosis.SourceCRDs, diagnosis.SourceDaemonSets,
	diagnosis.SourceDeployments, diagnosis.SourceServiceAccounts, diagnosis.SourceStatefulSets,
}

// Find searches the facts for the owner of a finalizer that the given objects have. There are no
// objects if it is a finalizer of the Namespace itself.
//
// Names that are only similar are not evidence, and neither are Leases. An owner is never reported as
// absent: it may run outside the cluster.
func Find(facts *diagnosis.Facts, finalizer string, objects []diagnosis.RemainingObject) Owner {
	s := search{Facts: facts, finalizer: finalizer, objects: objects}
	if known, ok := Known(finalizer, objects); ok {
		s.owner.Known = known
	}
	s.readManagers()
	steps := []func() []match{s.byFieldManager, s.byPermission, s.byRelease}
	if s.owner.Known != nil {
		steps = []func() []match{s.byKnown}
	}
	for _, identify := range steps {
		if matches := identify(); len(matches) > 0 {
			s.add(matches)
			break
		}
	}
	s.setMissingAccount()
	s.setState()
	return s.owner
}

// search is the state of one call of Find.
type search struct {
	*diagnosis.Facts
	finalizer string
	objects   []diagnosis.RemainingObject
	owner     Owner

	// managers are the field managers that added the finalizer.
	managers []string
	// lastManager is the last of these field managers, or of the field managers of a known controller, that changed one
	// of the objects after its deletion was requested.
	lastManager  string
	lastChangeAt time.Time
}

// match is a workload with the reason why it is inferred to be the owner.
type match struct {
	workload *diagnosis.Workload
	basis    string
}

// readManagers reads from managedFields which field managers added the finalizer, and whether one of
// them changed an object after its deletion was requested.
func (s *search) readManagers() {
	for _, object := range s.objects {
		for _, entry := range object.ManagedFields {
			if entry.FieldsV1 != nil && hasFinalizer(entry.FieldsV1.GetRawBytes(), s.finalizer) {
				s.managers = append(s.managers, entry.Manager)
			}
		}
	}
	slices.Sort(s.managers)
	s.managers = slices.Compact(s.managers)
	if len(s.managers) > 0 {
		s.owner.Evidence = append(s.owner.Evidence,
			diagnosis.Proven(fmt.Sprintf("managedFields: the finalizer was added by %s", diagnosis.JoinNames(s.managers)))...)
	}
	for _, object := range s.objects {
		for _, entry := range object.ManagedFields {
			if s.isOwnManager(entry.Manager) && entry.Time != nil && entry.Time.After(object.DeletedAt()) &&
				entry.Time.After(s.lastChangeAt) {
				s.lastManager, s.lastChangeAt = entry.Manager, entry.Time.Time
			}
		}
	}
	if s.lastManager != "" {
		s.owner.Evidence = append(s.owner.Evidence,
			diagnosis.Proven(fmt.Sprintf("managedFields: %s changed an object at %s, after the deletion was requested",
				s.lastManager, diagnosis.FormatTime(s.lastChangeAt)))...)
	}
}

// isOwnManager reports whether a field manager is the owner. Many projects share some names, even of known
// controllers.
func (s *search) isOwnManager(manager string) bool {
	return slices.Contains(s.managers, manager) && identifiesController(manager) ||
		slices.Contains(s.knownManagers(), manager) && !slices.Contains(commonNames, manager)
}

func hasFinalizer(fields []byte, finalizer string) bool {
	return bytes.Contains(fields, []byte(`"v:\"`+finalizer+`\""`))
}

func (s *search) knownManagers() []string {
	if s.owner.Known == nil || s.owner.Known.Controller == nil {
		return nil
	}
	return s.owner.Known.Controller.FieldManagers
}

func (s *search) byKnown() []match {
	if s.owner.Known.Controller == nil {
		return nil
	}
	return s.matches(func(workload *diagnosis.Workload) string {
		if isWorkload(s.owner.Known.Controller, workload) {
			return fmt.Sprintf("its labels and its name or image are those of %s", s.owner.Known.Owner)
		}
		return ""
	})
}

// byFieldManager finds the workloads with the name, a container name or an image of one of the field
// managers that added the finalizer. By default, the field manager is the name of the client's
// executable.
func (s *search) byFieldManager() []match {
	return s.matches(func(workload *diagnosis.Workload) string {
		for _, manager := range s.managers {
			if !identifiesController(manager) {
				continue
			}
			if workload.Name == manager || slices.Contains(workload.Containers, manager) {
				return fmt.Sprintf("its name or a container name is %s, the field manager that added the finalizer", manager)
			}
			if slices.ContainsFunc(workload.Images, func(image string) bool { return imageName(image) == manager }) {
				return fmt.Sprintf("its image is named %s, like the field manager that added the finalizer", manager)
			}
		}
		return ""
	})
}

// byPermission finds the workloads whose ServiceAccount may write the finalizers or the status of one
// of the types of the objects, which only controllers do.
func (s *search) byPermission() []match {
	accounts := Controllers(s.Facts, s.objects)
	return s.matches(func(workload *diagnosis.Workload) string {
		for _, account := range accounts {
			if account.Name == workload.ServiceAccount {
				return fmt.Sprintf("its ServiceAccount %s may write %s through ClusterRoleBinding %q",
					account.Name, account.Permission, account.Binding)
			}
		}
		return ""
	})
}

// setMissingAccount sets MissingAccount if no ServiceAccount with the permissions of the owner exists, and
// nothing else identifies the owner.
func (s *search) setMissingAccount() {
	accounts := Controllers(s.Facts, s.objects)
	canExist := slices.ContainsFunc(accounts, func(account Account) bool {
		exists, ok := s.ServiceAccounts[account.Name]
		return exists || !ok
	})
	if s.owner.Known != nil || len(s.owner.Workloads) > 0 || s.lastManager != "" || len(accounts) == 0 || canExist {
		return
	}
	s.owner.MissingAccount = &accounts[0]
	s.owner.Evidence = append(s.owner.Evidence, diagnosis.Inferred(accounts[0].text())...)
}

// byRelease finds the workloads that were installed together with the CustomResourceDefinition of one
// of the objects.
func (s *search) byRelease() []match {
	if s.IsPublic {
		return nil // Public findings must not show which releases exist.
	}
	var releases []string
	for i := range s.CRDs {
		if slices.ContainsFunc(s.objects, func(object diagnosis.RemainingObject) bool {
			return object.Type.String() == s.CRDs[i].Name
		}) {
			releases = append(releases, diagnosis.ReleasesOf(&s.CRDs[i])...)
		}
	}
	return s.matches(func(workload *diagnosis.Workload) string {
		for _, release := range workload.Releases {
			if slices.Contains(releases, release) {
				return fmt.Sprintf("it was installed with the CustomResourceDefinition, by %s", release)
			}
		}
		return ""
	})
}

func (s *search) matches(basisOf func(*diagnosis.Workload) string) []match {
	var matches []match
	for i := range s.Workloads {
		workload := &s.Workloads[i]
		if basis := basisOf(workload); basis != "" && s.MayName(workload.Namespace) {
			matches = append(matches, match{workload, basis})
		}
	}
	return matches
}

func (s *search) add(matches []match) {
	for _, match := range matches {
		s.owner.Workloads = append(s.owner.Workloads, match.workload)
		if len(s.owner.Workloads) <= diagnosis.MaxObjects {
			s.owner.Evidence = append(s.owner.Evidence, diagnosis.Inferred(fmt.Sprintf("%s %s/%s has %d of %d pods ready; %s",
				match.workload.Source, match.workload.Namespace, match.workload.Name, match.workload.Ready,
				match.workload.Desired, match.basis))...)
		}
	}
}

func (s *search) setState() {
	for _, source := range sources {
		if !s.IsRead(source) {
			s.owner.Unread = append(s.owner.Unread, source)
		}
	}
	ready := 0
	for _, workload := range s.owner.Workloads {
		if workload.IsReady() {
			ready++
		}
	}
	total := len(s.owner.Workloads)
	// Only the labels of known controllers identify several instances of the same owner.
	isIdentified := total == 1 || total > 1 && s.owner.Known != nil
	switch {
	case isIdentified && ready == total, total == 0 && s.Now.Sub(s.lastChangeAt) < recentChange:
		s.owner.State = diagnosis.OwnerRunning
	// If the owner has just changed an object, the workload without ready pods may not be the owner.
	case isIdentified && ready == 0 && len(s.owner.Unread) == 0 && s.IsOverdue(s.lastChangeAt):
		s.owner.State = diagnosis.OwnerNotRunning
	case total > 0, s.lastManager != "", len(s.owner.Unread) > 0, s.IsPublic, s.canRunElsewhere():
		s.owner.State = diagnosis.OwnerUnknown
	default:
		s.owner.State = diagnosis.OwnerNotFound
	}
}

// canRunElsewhere reports whether the owner can run in the control plane, outside the cluster, at a cloud
// provider, or in a workload that cannot be identified.
func (s *search) canRunElsewhere() bool {
	if s.owner.Known != nil {
		return s.owner.Known.IsBuiltIn() || s.owner.Known.External || !s.owner.Known.hasWorkload()
	}
	return isCloudDomain(domainOf(s.finalizer))
}

// domainOf returns the domain in the name of a finalizer, or "" if there is none. Examples:
// foo.example.com for foo.example.com/bar, and example.com for finalizer.example.com.
func domainOf(finalizer string) string {
	domain, _, hasPath := strings.Cut(finalizer, "/")
	for _, prefix := range []string{"finalizer.", "finalizers.", "foreground-finalizer.", "resources-finalizer."} {
		domain = strings.TrimPrefix(domain, prefix)
	}
	if !hasPath && !strings.Contains(finalizer, ".") || !strings.Contains(domain, ".") {
		return ""
	}
	return strings.ToLower(domain)
}

// imageName returns the last part of the name of an image, without its tag.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image, _, _ = strings.Cut(path.Base(image), ":")
	return image
}

// writersOfManifests are the beginnings of the field managers of users and of tools that apply the
// manifests of users, which can contain any finalizer.
var writersOfManifests = []string{
	"kubectl", "helm", "kube-apiserver", "kube-controller-manager", "before-first-apply", "k9s", "Mozilla",
	"node-fetch", "unknown", "argocd", "kustomize-controller", "fleetagent", "Terraform", "terraform", "pulumi",
	"nslifecycle",
}

// commonNames are field managers that are names of executables of many projects.
var commonNames = []string{
	"main", "manager", "controller", "controller-manager", "controllers", "operator", "server", "agent", "app",
	"Go-http-client", "python-requests", "okhttp", "java", "node", "curl", "binary", "entrypoint", "start",
	"OpenAPI-Generator", "fabric8-kubernetes-client", "fabric8", "apiserver", "backend", "daemon", "service", "webhook",
	"worker",
}

// identifiesController reports whether the name of a field manager identifies one controller.
func identifiesController(manager string) bool {
	return len(manager) > 3 && !slices.Contains(commonNames, manager) &&
		!slices.ContainsFunc(writersOfManifests, func(prefix string) bool { return strings.HasPrefix(manager, prefix) })
}
