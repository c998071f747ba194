// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	shop  = Owner{Namespace: "shop", UID: "11111111-aaaa"}
	// shopAgain is a recreated Namespace with the same name.
	shopAgain = Owner{Namespace: "shop", UID: "22222222-bbbb"}
)

const shopIndex = "shop-11111111"

// clock is a fake clock for the store.
type clock struct{ time time.Time }

func (c *clock) now() time.Time { return c.time }

func openAt(t *testing.T, dir string, clock *clock) *Store {
	t.Helper()
	store, err := open(dir, clock.now)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func openNew(t *testing.T) *Store {
	t.Helper()
	return openAt(t, t.TempDir(), &clock{start})
}

func mustCreate(t *testing.T, store *Store, name string, owner Owner) {
	t.Helper()
	if _, isNew, err := store.Create(name, owner); err != nil || !isNew {
		t.Fatalf("Create(%q, %v): isNew %t, error %v", name, owner, isNew, err)
	}
}

func mustAdd(t *testing.T, store *Store, name string, document Document) string {
	t.Helper()
	id, _, err := store.Add(name, document)
	if err != nil {
		t.Fatalf("Add(%q, %v): %v", name, document, err)
	}
	return id
}

func TestCreate(t *testing.T) {
	for name, test := range map[string]struct {
		index   string
		owner   Owner
		prepare func(*Store) error
		isNew   bool
		want    error
	}{
		"new":                   {index: shopIndex, owner: shop, isNew: true},
		"existing":              {index: shopIndex, owner: shop, prepare: createShop},
		"another UID":           {index: shopIndex, owner: shopAgain, prepare: createShop, want: ErrConflict},
		"another namespace":     {index: shopIndex, owner: Owner{Namespace: "shoe", UID: shop.UID}, prepare: createShop, want: ErrConflict},
		"deleted":               {index: shopIndex, owner: shop, prepare: createAndDeleteShop, want: ErrDeleted},
		"deleted and recreated": {index: shopIndex, owner: shopAgain, prepare: createAndDeleteShop, isNew: true},
		"only deleted":          {index: shopIndex, owner: shop, prepare: deleteShop, want: ErrDeleted},
		"no name":               {owner: shop, want: ErrInvalid},
		"a path":                {index: "../shop", owner: shop, want: ErrInvalid},
		"a hidden name":         {index: ".deleted", owner: shop, want: ErrInvalid},
		"capital letters":       {index: "Shop", owner: shop, want: ErrInvalid},
		"a dash at the end": {
			index: "shop-", owner: shop, want: ErrInvalid,
		},
		"128 characters":  {index: strings.Repeat("a", 128), owner: shop, want: ErrInvalid},
		"127 characters":  {index: strings.Repeat("a", 127), owner: shop, isNew: true},
		"no UID":          {index: shopIndex, owner: Owner{Namespace: "shop"}, want: ErrInvalid},
		"a path as a UID": {index: shopIndex, owner: Owner{Namespace: "shop", UID: "../x"}, want: ErrInvalid},
		"no namespace":    {index: shopIndex, owner: Owner{UID: shop.UID}, want: ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			store := openNew(t)
			if test.prepare != nil {
				if err := test.prepare(store); err != nil {
					t.Fatal(err)
				}
			}
			before := store.List()

			made, isNew, err := store.Create(test.index, test.owner)

			if !errors.Is(err, test.want) || isNew != test.isNew {
				t.Errorf("Create: isNew %t, error %v; want %t, %v", isNew, err, test.isNew, test.want)
			}
			if test.want == nil {
				want := Index{Name: test.index, Owner: test.owner, Created: start}
				if diff := cmp.Diff(want, made); diff != "" {
					t.Errorf("Create (-want +got):\n%s", diff)
				}
			} else if diff := cmp.Diff(before, store.List()); diff != "" {
				t.Errorf("A rejected Create changed the indices (-want +got):\n%s", diff)
			}
		})
	}
}

func createShop(store *Store) error {
	_, _, err := store.Create(shopIndex, shop)
	return err
}

func deleteShop(store *Store) error {
	return store.Delete(shopIndex, shop.UID)
}

func createAndDeleteShop(store *Store) error {
	return errors.Join(createShop(store), deleteShop(store))
}

func TestDelete(t *testing.T) {
	store := openNew(t)
	mustCreate(t, store, shopIndex, shop)

	if err := store.Delete(shopIndex, shopAgain.UID); !errors.Is(err, ErrConflict) {
		t.Errorf("Delete with another UID: %v, want ErrConflict", err)
	}
	if err := store.Delete(shopIndex, ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("Delete without a UID: %v, want ErrInvalid", err)
	}
	if _, err := store.Get(shopIndex); err != nil {
		t.Errorf("Get after a rejected Delete: %v", err)
	}
	for range 2 {
		if err := store.Delete(shopIndex, shop.UID); err != nil {
			t.Errorf("Delete: %v", err)
		}
		if _, err := store.Get(shopIndex); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get after Delete: %v, want ErrNotFound", err)
		}
	}
	if left, err := os.ReadDir(store.dir); err != nil || len(left) != 1 || left[0].Name() != deletedDir {
		t.Errorf("The remaining files are %v, error %v; want only %s", left, err, deletedDir)
	}
	if _, _, err := store.Add(shopIndex, Document{Text: "late"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Add after Delete: %v, want ErrNotFound", err)
	}
}

// Each case is the state after an attempt that changed the file, but did not sync it to the disk.
func TestRetryAfterAFailedSync(t *testing.T) {
	t.Run("create", func(t *testing.T) {
		store := openNew(t)
		if err := writeJSON(store.path(shopIndex), &index{Record: Index{Name: shopIndex, Owner: shop, Created: start}}); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, store, shopIndex, shop)
	})
	t.Run("delete", func(t *testing.T) {
		store := openNew(t)
		mustCreate(t, store, shopIndex, shop)
		if err := errors.Join(os.Remove(store.path(shopIndex)), deleteShop(store)); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(store.dir); err != nil || len(left) != 1 {
			t.Errorf("The remaining files are %v, error %v; want only %s", left, err, deletedDir)
		}
	})
}

func TestDeletionRecordsExpire(t *testing.T) {
	clock := &clock{start}
	store := openAt(t, t.TempDir(), clock)
	if err := deleteShop(store); err != nil {
		t.Fatal(err)
	}
	clock.time = start.Add(deletionRetention)
	if err := store.Delete("other", "33333333"); err != nil {
		t.Fatal(err)
	}
	if err := createShop(store); !errors.Is(err, ErrDeleted) {
		t.Errorf("Create after a day: %v, want ErrDeleted", err)
	}
	clock.time = start.Add(deletionRetention + time.Second)
	if err := store.Delete("another", "44444444"); err != nil {
		t.Fatal(err)
	}
	if err := createShop(store); err != nil {
		t.Errorf("Create after more than a day: %v", err)
	}
	if _, err := os.Stat(store.deletedPath(shop.UID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("The file of an expired deletion record: %v, want ErrNotExist", err)
	}
}

// Each case creates the state after a crash at a different point.
func TestOpenCleansUpAfterCrash(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, store *Store) error{
		"an incomplete index": func(_ *testing.T, store *Store) error {
			return os.WriteFile(filepath.Join(store.dir, scratchPrefix+"1"), []byte(`{"record":`), 0o600)
		},
		"an incomplete deletion record": func(_ *testing.T, store *Store) error {
			return os.WriteFile(filepath.Join(store.dir, deletedDir, scratchPrefix+"1"), []byte(`"20`), 0o600)
		},
		"a recorded deletion of an existing index": func(t *testing.T, store *Store) error {
			mustCreate(t, store, "other", shopAgain)
			return store.remember(shopAgain.UID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, clock := t.TempDir(), &clock{start}
			store := openAt(t, dir, clock)
			mustCreate(t, store, shopIndex, shop)
			mustAdd(t, store, shopIndex, Document{ID: "ready", Time: start, Text: "ready"})
			want := store.List()
			if err := leave(t, store); err != nil {
				t.Fatal(err)
			}

			store = openAt(t, dir, clock)

			if diff := cmp.Diff(want, store.List()); diff != "" {
				t.Errorf("List (-want +got):\n%s", diff)
			}
			err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
				if strings.Contains(path, scratchPrefix) || strings.Contains(path, "other") {
					t.Errorf("%s still exists", path)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
