// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package createdlist

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

const server, user = "https://a.example.com", "alice"

// newList returns the list of a user in a new home directory.
func newList(t *testing.T) *List {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	list, err := Of(server, user)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return list
}

func names(list *List) ([]string, error) {
	namespaces, err := list.Namespaces()
	names := make([]string, 0, len(namespaces))
	for _, namespace := range namespaces {
		names = append(names, namespace.Name)
	}
	return names, err
}

func TestList(t *testing.T) {
	g := NewWithT(t)
	list := newList(t)
	g.Expect(list.Namespaces()).To(BeEmpty())
	shop, test := Namespace{Name: "shop", UID: "1"}, Namespace{Name: "test", UID: "2"}
	g.Expect(list.Add(test)).To(Succeed())
	g.Expect(list.Add(shop)).To(Succeed())
	g.Expect(list.Namespaces()).To(Equal([]Namespace{shop, test}))

	for _, other := range [][]string{{"https://b.example.com", user}, {server, "bob"}} {
		list, err := Of(other[0], other[1])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Namespaces()).To(BeEmpty())
	}

	newShop := Namespace{Name: "shop", UID: "3"}
	g.Expect(list.Add(newShop)).To(Succeed())
	g.Expect(list.Remove(shop)).To(Succeed(), "another namespace has been recorded since")
	g.Expect(list.Namespaces()).To(Equal([]Namespace{newShop, test}))
	g.Expect(list.Remove(newShop)).To(Succeed())
	g.Expect(list.Remove(newShop)).To(Succeed())
	g.Expect(list.Namespaces()).To(Equal([]Namespace{test}))
}

func TestListIsPrivate(t *testing.T) {
	g := NewWithT(t)
	list := newList(t)
	g.Expect(list.Add(Namespace{Name: "shop", UID: "1"})).To(Succeed())
	file := filepath.Join(list.directory, prefix+"shop")
	for name, mode := range map[string]fs.FileMode{list.directory: 0o700, file: 0o600} {
		info, err := os.Stat(name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(mode), name)
	}
	g.Expect(os.UserHomeDir()).To(Equal(filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(list.directory))))))
}

func TestListIsBounded(t *testing.T) {
	g := NewWithT(t)
	list := newList(t)
	for i := range maxNamespaces {
		name := fmt.Sprintf("ns-%03d", i)
		g.Expect(list.Add(Namespace{Name: name, UID: types.UID(name)})).To(Succeed())
		// The first names are the newest.
		at := time.Now().Add(-time.Duration(i) * time.Minute)
		g.Expect(os.Chtimes(filepath.Join(list.directory, prefix+name), at, at)).To(Succeed())
	}
	g.Expect(list.Add(Namespace{Name: "a", UID: "a"})).To(Succeed())
	recorded, err := names(list)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(recorded).To(HaveLen(maxNamespaces))
	g.Expect(recorded).To(ContainElements("a", "ns-000"))
	g.Expect(recorded).NotTo(ContainElement(fmt.Sprintf("ns-%03d", maxNamespaces-1)))
}

func TestConcurrentAdd(t *testing.T) {
	g := NewWithT(t)
	list := newList(t)
	var group sync.WaitGroup
	const count = 50
	errs := make([]error, count)
	for i := range count {
		group.Go(func() { errs[i] = list.Add(Namespace{Name: fmt.Sprintf("ns-%d", i), UID: "1"}) })
	}
	group.Wait()
	g.Expect(errs).To(HaveEach(BeNil()))
	g.Expect(names(list)).To(HaveLen(count))
}

func TestInvalidFiles(t *testing.T) {
	g := NewWithT(t)
	list := newList(t)
	g.Expect(list.Add(Namespace{Name: "shop", UID: "1"})).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(list.directory, "other"), nil, 0o600)).To(Succeed())
	g.Expect(names(list)).To(Equal([]string{"shop"}))

	g.Expect(os.Mkdir(filepath.Join(list.directory, prefix+"broken"), 0o700)).To(Succeed())
	recorded, err := names(list)
	g.Expect(err).To(MatchError(ContainSubstring(prefix + "broken")))
	g.Expect(recorded).To(Equal([]string{"shop"}))
}

func TestNoHome(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CONFIG_HOME", "")
	_, err := Of(server, user)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("$HOME")))
}
