// Package redislink connects to Redis or Valkey for the packages that share state between gateways.
package redislink
