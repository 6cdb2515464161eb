// Package redislink connects to Redis or Valkey, for all that gateways share.
package redislink
